// Places where a test may stop or kill the process: CAISSON_FAILPOINT("store.submit.committed").
//
// In builds with CAISSON_FAILPOINTS (presets debug, asan, tsan) the environment variable
// CAISSON_FAILPOINT names what happens where: "name=abort", "name=kill" (SIGKILL to itself) or
// "name=kill@3" (the third time), several separated by commas. In release builds nothing is there.
#pragma once

#ifdef CAISSON_FAILPOINTS
namespace caisson {
void HitFailpoint(const char* name);
}
#define CAISSON_FAILPOINT(name) ::caisson::HitFailpoint(name)
#else
#define CAISSON_FAILPOINT(name) \
  do {                          \
  } while (false)
#endif
