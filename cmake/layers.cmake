# One static library a folder of src/. A folder may use only folders that stand before it in this list,
# and only those it names; tools/check-layers holds the #include lines to the same rule.
set(CAISSON_LAYERS
  base json config telemetry net http auth events store
  guest launcher sandbox egress files model mcp agent runtime api cli)

# caisson_library(<folder> SOURCES <file>... [USES <folder>...] [LINKS <external target>...])
# Makes the target caisson_<folder>. Sub-folders belong to their folder's library.
function(caisson_library folder)
  cmake_parse_arguments(arg "" "" "SOURCES;USES;LINKS" ${ARGN})
  list(FIND CAISSON_LAYERS ${folder} own)
  if(own EQUAL -1)
    message(FATAL_ERROR "${folder} is not in CAISSON_LAYERS (cmake/layers.cmake)")
  endif()
  add_library(caisson_${folder} STATIC ${arg_SOURCES})
  target_link_libraries(caisson_${folder} PUBLIC caisson_flags ${arg_LINKS})
  foreach(used IN LISTS arg_USES)
    list(FIND CAISSON_LAYERS ${used} other)
    if(other EQUAL -1 OR NOT other LESS own)
      message(FATAL_ERROR "${folder} may not use ${used}: links go only downward (cmake/layers.cmake)")
    endif()
    target_link_libraries(caisson_${folder} PUBLIC caisson_${used})
  endforeach()
endfunction()
