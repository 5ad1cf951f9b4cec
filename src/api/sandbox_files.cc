// Files and search in a sandbox. The calls are the guest's (docs/guest-protocol.md, 6 and 7): this
// passes them on, scoped and authenticated, and streams what is large.
#include <fmt/format.h>

#include <array>

#include "api/router.h"
#include "guest/protocol.h"

namespace caisson::api {
namespace {

constexpr Millis kCallTime{30'000};
constexpr Millis kTransferTime{600'000};

// The query parameters that a call knows: static arrays, since they outlive the function that names
// them (a task starts later).
using Parameters = std::span<const std::string_view>;

constexpr std::array<std::string_view, 6> kWriteParameters{"path",        "root",    "mode",
                                                           "create_only", "parents", "if_match"};
constexpr std::array<std::string_view, 3> kReadParameters{"path", "root", "hash"};
constexpr std::array<std::string_view, 7> kLinesParameters{
    "path", "root", "offset", "limit", "max_bytes", "max_line_bytes", "newline"};
constexpr std::array<std::string_view, 3> kStatParameters{"path", "root", "follow"};
constexpr std::array<std::string_view, 4> kListParameters{"path", "root", "limit", "after"};

struct Call {
  std::shared_ptr<sandbox::GuestClient> guest;
  std::string target;
};

// The guest's target for this request: its path, and of the query what the call knows.
Task<Result<Call>> Prepare(Context& context, std::string_view path, Parameters parameters) {
  if (context.services.sandboxes == nullptr) {
    co_return Fail(ErrorCode::kNoBackend, "this host cannot make sandboxes");
  }
  CAISSON_CO_ASSIGN(SandboxId id, SandboxId::Parse(context.Param("id")));
  for (const auto& [name, value] : context.request.query()) {
    if (std::ranges::find(parameters, name) == parameters.end()) {
      co_return Fail(ErrorCode::kInvalidArgument,
                     fmt::format("\"{}\" is not a parameter of this call", name));
    }
  }
  Call call;
  Until until(Deadline::After(context.services.clock, kCallTime), context.request.stop());
  CAISSON_CO_ASSIGN(call.guest,
                    co_await context.services.sandboxes->Open(context.scope, std::move(id), until));
  call.target = path;
  char separator = '?';
  for (const auto& [name, value] : context.request.query()) {
    call.target += fmt::format("{}{}={}", separator, name, http::EncodeQueryValue(value));
    separator = '&';
  }
  co_return call;
}

Task<Result<Reply>> PassJson(Context& context, std::string method, std::string_view path,
                             Parameters parameters) {
  CAISSON_CO_ASSIGN(Call call, co_await Prepare(context, path, parameters));
  std::string body;
  if (method == "POST") {
    CAISSON_CO_ASSIGN(json::object object, co_await ReadJson(context));
    body = json::Serialize(object);
  }
  Until until(Deadline::After(context.services.clock, kCallTime), context.request.stop());
  CAISSON_CO_ASSIGN(std::string text,
                    co_await call.guest->CallJson(std::move(method), std::move(call.target),
                                                  std::move(body), until));
  co_return Reply{200, {{"Content-Type", "application/json"}}, std::move(text), false};
}

// Content as it is, with its description in a header.
Task<Result<Reply>> PassContent(Context& context, std::string_view path, Parameters parameters) {
  CAISSON_CO_ASSIGN(Call call, co_await Prepare(context, path, parameters));
  Until until(Deadline::After(context.services.clock, kTransferTime), context.request.stop());
  http::Headers forwarded;
  if (auto range = context.request.head().headers.Find("range"))
    forwarded.Add("Range", std::string(*range));
  CAISSON_CO_ASSIGN(auto answer, co_await call.guest->Call("GET", std::move(call.target), "", "",
                                                           until, std::move(forwarded)));
  http::Headers headers{{"Content-Type", "application/octet-stream"},
                        {"X-Request-Id", context.request_id}};
  for (const char* name : {"Caisson-Meta", "Content-Range"}) {
    if (auto value = answer.head.headers.Find(name)) headers.Add(name, std::string(*value));
  }
  CAISSON_CO_TRY(co_await context.response.Start(answer.head.status, std::move(headers)));
  for (;;) {
    CAISSON_CO_ASSIGN(std::string piece, co_await answer.connection->ReadBody(until));
    if (piece.empty()) break;
    CAISSON_CO_TRY(co_await context.response.Write(piece));
  }
  CAISSON_CO_TRY(co_await context.response.Finish());
  co_return Reply::Answered();
}

// The request's body, piece by piece.
class RequestBody final : public http::BodySource {
 public:
  explicit RequestBody(http::ServerRequest& request) : request_(request) {}
  Task<Result<std::string_view>> Next(Until) override {
    CAISSON_CO_ASSIGN(piece_, co_await request_.ReadBody());
    co_return std::string_view(piece_);
  }

 private:
  http::ServerRequest& request_;
  std::string piece_;
};

Task<Result<Reply>> Write(Context& context) {
  CAISSON_CO_ASSIGN(Call call,
                    co_await Prepare(context, guest::kPathFileContent, kWriteParameters));
  Until until(Deadline::After(context.services.clock, kTransferTime), context.request.stop());
  RequestBody body(context.request);
  CAISSON_CO_ASSIGN(std::string text,
                    co_await call.guest->Upload(std::move(call.target), body, until));
  co_return Reply{200, {{"Content-Type", "application/json"}}, std::move(text), false};
}

Task<Result<Reply>> Read(Context& context) {
  return PassContent(context, guest::kPathFileContent, kReadParameters);
}
Task<Result<Reply>> Lines(Context& context) {
  return PassContent(context, guest::kPathFileLines, kLinesParameters);
}
Task<Result<Reply>> Stat(Context& context) {
  return PassJson(context, "GET", guest::kPathFileStat, kStatParameters);
}
Task<Result<Reply>> List(Context& context) {
  return PassJson(context, "GET", guest::kPathFileList, kListParameters);
}
Task<Result<Reply>> Edit(Context& context) {
  return PassJson(context, "POST", guest::kPathFileEdit, {});
}
Task<Result<Reply>> Mkdir(Context& context) {
  return PassJson(context, "POST", guest::kPathFileMkdir, {});
}
Task<Result<Reply>> Move(Context& context) {
  return PassJson(context, "POST", guest::kPathFileMove, {});
}
Task<Result<Reply>> Remove(Context& context) {
  return PassJson(context, "POST", guest::kPathFileRemove, {});
}
Task<Result<Reply>> Glob(Context& context) {
  return PassJson(context, "POST", guest::kPathGlob, {});
}
Task<Result<Reply>> Grep(Context& context) {
  return PassJson(context, "POST", guest::kPathGrep, {});
}

constexpr std::string_view kObject = R"({"type":"object"})";

constexpr std::array kSchemas{
    // What is no UTF-8 comes in base64, too. With `error` nothing is known but the name.
    Schema{"FileEntry",
           "path:string path_base64?:string name:string name_base64?:string "
           "type?:file|directory|symlink|fifo|socket|device size_bytes?:int mode?:string uid?:int "
           "gid?:int modified_at_ms?:int target?:string target_base64?:string error?:string"},
    Schema{"FileList", "entries:[FileEntry] truncated:bool"},
    Schema{"WrittenFile", "size_bytes:int sha256:string created:bool"},
    Schema{"EditedFile", "count:int sha256:string size_bytes:int"},
    Schema{"RemovedFile", "removed:bool"},
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
          One("EditedFile"), Edit},
    Route{"POST", "/v1/sandboxes/{id}/files/mkdir", "Make a directory.", kObject, One("FileEntry"),
          Mkdir},
    Route{"POST", "/v1/sandboxes/{id}/files/move", "Move a file or directory.", kObject,
          One("FileEntry"), Move},
    Route{"POST", "/v1/sandboxes/{id}/files/remove", "Remove a file or directory.", kObject,
          One("RemovedFile"), Remove},
    Route{"POST", "/v1/sandboxes/{id}/search/glob", "Find files by pattern.", kObject,
          One("GlobResult"), Glob},
    Route{"POST", "/v1/sandboxes/{id}/search/grep", "Find lines by text or pattern.", kObject,
          One("GrepResult"), Grep},
};

}  // namespace

Resource SandboxFileResource() { return {kRoutes, kSchemas}; }

}  // namespace caisson::api
