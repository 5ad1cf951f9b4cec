// Files and search in a sandbox. The calls are the guest's (docs/guest-protocol.md, 6 and 7).
#include <array>

#include "api/guest_calls.h"
#include "api/router.h"
#include "guest/protocol.h"

namespace caisson::api {
namespace {

constexpr std::array<std::string_view, 6> kWriteParameters{"path",        "root",    "mode",
                                                           "create_only", "parents", "if_match"};
constexpr std::array<std::string_view, 3> kReadParameters{"path", "root", "hash"};
constexpr std::array<std::string_view, 7> kLinesParameters{
    "path", "root", "offset", "limit", "max_bytes", "max_line_bytes", "newline"};
constexpr std::array<std::string_view, 4> kStatParameters{"path", "root", "follow", "media_type"};
constexpr std::array<std::string_view, 4> kListParameters{"path", "root", "limit", "after"};

constexpr std::array<std::string_view, 5> kUploadParameters{"root", "parents", "max_files",
                                                            "max_file_bytes", "max_total_bytes"};

Task<Result<Reply>> Write(Context& context) {
  return PassUpload(context, "PUT", std::string(guest::kPathFileContent), kWriteParameters);
}
Task<Result<Reply>> Upload(Context& context) {
  return PassUpload(context, "POST", std::string(guest::kPathFileUpload), kUploadParameters);
}
Task<Result<Reply>> Read(Context& context) {
  return PassContent(context, "GET", std::string(guest::kPathFileContent), kReadParameters);
}
Task<Result<Reply>> Download(Context& context) {
  return PassContent(context, "POST", std::string(guest::kPathFileDownload), {});
}
constexpr std::array<std::string_view, 3> kPackParameters{"path", "root", "skip_unreadable"};
constexpr std::array<std::string_view, 5> kUnpackParameters{"path", "root", "create_only",
                                                            "max_entries", "max_total_bytes"};
Task<Result<Reply>> Pack(Context& context) {
  return PassContent(context, "GET", std::string(guest::kPathFileArchive), kPackParameters);
}
Task<Result<Reply>> Unpack(Context& context) {
  return PassUpload(context, "PUT", std::string(guest::kPathFileArchive), kUnpackParameters);
}
constexpr std::array<std::string_view, 3> kWatchParameters{"path", "root", "recursive"};
Task<Result<Reply>> Watch(Context& context) { return PassWatch(context, kWatchParameters); }
Task<Result<Reply>> Lines(Context& context) {
  return PassContent(context, "GET", std::string(guest::kPathFileLines), kLinesParameters);
}
Task<Result<Reply>> Stat(Context& context) {
  return PassJson(context, "GET", std::string(guest::kPathFileStat), kStatParameters);
}
Task<Result<Reply>> List(Context& context) {
  return PassJson(context, "GET", std::string(guest::kPathFileList), kListParameters);
}
constexpr std::array<std::string_view, 1> kSetParameters{"path"};
constexpr std::array<std::string_view, 2> kBlobParameters{"path", "sha256"};
Task<Result<Reply>> ShowSet(Context& context) {
  return PassJson(context, "GET", std::string(guest::kPathSets), kSetParameters);
}
Task<Result<Reply>> PutBlob(Context& context) {
  return PassUpload(context, "PUT", std::string(guest::kPathSetBlob), kBlobParameters);
}
// The calls whose whole request is a JSON body.
template <const std::string_view& path>
Task<Result<Reply>> Post(Context& context) {
  return PassJson(context, "POST", std::string(path), {});
}

constexpr std::string_view kObject = R"({"type":"object"})";
constexpr std::string_view kDownloadSchema =
    R"({"type":"object","properties":{"paths":{"type":"array"},"root":{"enum":["sandbox","work_dir"]},
"max_files":{"type":"integer"},"max_file_bytes":{"type":"integer"},
"max_total_bytes":{"type":"integer"}},"required":["paths"]})";

constexpr std::array kSchemas{
    // What is no UTF-8 comes in base64, too. With `error` nothing is known but the name.
    Schema{"FileEntry",
           "path:string path_base64?:string name:string name_base64?:string "
           "type?:file|directory|symlink|fifo|socket|device size_bytes?:int mode?:string uid?:int "
           "gid?:int modified_at_ms?:int target?:string target_base64?:string media_type?:string "
           "text?:bool error?:string"},
    Schema{"FileList", "entries:[FileEntry] truncated:bool"},
    Schema{"ReadOnlySet", "digest:string"},
    Schema{"AppliedSet", "missing:[string] digest:string changed:bool"},
    Schema{"SetBlob", "size_bytes:int"},
    Schema{"WrittenFile", "size_bytes:int sha256:string created:bool"},
    Schema{
        "EditedFile",
        "count:int sha256:string size_bytes:int diff?:string diff_base64?:string diff_cut?:bool"},
    Schema{"RemovedFile", "removed:bool"},
    Schema{"CopiedFiles", "files:int directories:int links:int size_bytes:int skipped:int"},
    Schema{"UnpackedArchive",
           "files:int directories:int links:int size_bytes:int failed:int failures:[FileFailure]"},
    Schema{"FileFailure",
           "path:string path_base64?:string code:string message:string errno?:string"},
    Schema{"UploadedFiles", "results:[UploadedFile]"},
    // With `code` the file was not written.
    Schema{"UploadedFile",
           "path:string path_base64?:string size_bytes?:int code?:string message?:string "
           "errno?:string"},
    Schema{"GlobResult",
           "matches:[FileEntry] truncated:bool reason?:limit|deadline unreadable:int"},
    Schema{"GrepResult",
           "matches:[GrepMatch] truncated:bool reason?:limit|deadline files_searched:int "
           "binary_skipped:int unreadable:int"},
    // With `context` it is a line near one that matches.
    Schema{"GrepMatch",
           "path:string path_base64?:string line:int text:string text_base64?:string cut?:bool "
           "context?:bool"},
};

constexpr std::array kRoutes{
    Route{"GET", "/v1/sandboxes/{id}/files/content", "Read a file (Range is understood).", "",
          kBytes, Read},
    Route{"PUT", "/v1/sandboxes/{id}/files/content", "Write a file from the request's body.", "",
          One("WrittenFile"), Write},
    Route{"GET", "/v1/sandboxes/{id}/files/lines", "Read a window of lines.", "", kBytes, Lines},
    Route{"GET", "/v1/sandboxes/{id}/files/stat", "Describe a file.", "", One("FileEntry"), Stat},
    Route{"GET", "/v1/sandboxes/{id}/files/list", "List a directory.", "", One("FileList"), List},
    Route{"POST", "/v1/sandboxes/{id}/files/edit", "Replace a text in a file.", kObject,
          One("EditedFile"), Post<guest::kPathFileEdit>},
    Route{"POST", "/v1/sandboxes/{id}/files/mkdir", "Make a directory.", kObject, One("FileEntry"),
          Post<guest::kPathFileMkdir>},
    Route{"POST", "/v1/sandboxes/{id}/files/move", "Move a file or directory.", kObject,
          One("FileEntry"), Post<guest::kPathFileMove>},
    Route{"POST", "/v1/sandboxes/{id}/files/copy", "Copy a file, a link or a tree.", kObject,
          One("CopiedFiles"), Post<guest::kPathFileCopy>},
    Route{"POST", "/v1/sandboxes/{id}/files/upload",
          "Write many files from records; each has its own result.", "", One("UploadedFiles"),
          Upload},
    Route{"POST", "/v1/sandboxes/{id}/files/download",
          "Read many files as records; each that cannot be read says why.", kDownloadSchema,
          Success{guest::kMediaRecords, ""}, Download},
    Route{"GET", "/v1/sandboxes/{id}/files/archive", "Read a directory as a tar archive.", "",
          Success{guest::kMediaTar, ""}, Pack},
    Route{"PUT", "/v1/sandboxes/{id}/files/archive",
          "Unpack a tar archive into a directory; each entry that fails says why.", "",
          One("UnpackedArchive"), Unpack},
    Route{"GET", "/v1/sandboxes/{id}/files/watch",
          "Follow the changes in a directory, with `recursive=1` below it, as Server-Sent Events.",
          "", Success{"text/event-stream", ""}, Watch},
    Route{"POST", "/v1/sandboxes/{id}/files/remove", "Remove a file or directory.", kObject,
          One("RemovedFile"), Post<guest::kPathFileRemove>},
    Route{"GET", "/v1/sandboxes/{id}/sets", "Show what a read-only set holds.", "",
          One("ReadOnlySet"), ShowSet},
    Route{"POST", "/v1/sandboxes/{id}/sets/apply",
          "Make these files the content of a read-only set; or say which contents are missing.",
          kObject, One("AppliedSet"), Post<guest::kPathSetApply>},
    Route{"PUT", "/v1/sandboxes/{id}/sets/blob", "Give a content that an apply misses.", "",
          One("SetBlob"), PutBlob},
    Route{"POST", "/v1/sandboxes/{id}/search/glob", "Find files by pattern.", kObject,
          One("GlobResult"), Post<guest::kPathGlob>},
    Route{"POST", "/v1/sandboxes/{id}/search/grep", "Find lines by text or pattern.", kObject,
          One("GrepResult"), Post<guest::kPathGrep>},
};

}  // namespace

Resource SandboxFileResource() { return {kRoutes, kSchemas}; }

}  // namespace caisson::api
