#include "model.h"

#include "json/json.h"
#include "stats.h"

namespace caisson::bench {
namespace {

constexpr std::string_view kToolCall =
    R"(data: {"id":"c","object":"chat.completion.chunk","model":"instant","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call","type":"function","function":{"name":"execute","arguments":"{\"command\":\"true\"}"}}]},"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","model":"instant","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: [DONE]

)";
constexpr std::string_view kFinalText =
    R"(data: {"id":"c","object":"chat.completion.chunk","model":"instant","choices":[{"index":0,"delta":{"content":"It is done."},"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","model":"instant","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

)";

// True when the conversation ends with a tool's result.
bool AfterTool(const json::object& request) {
  const json::value* messages = request.if_contains("messages");
  if (messages == nullptr || !messages->is_array() || messages->get_array().empty()) return false;
  const json::object* last = messages->get_array().back().if_object();
  const json::value* role = last == nullptr ? nullptr : last->if_contains("role");
  return role != nullptr && role->is_string() && role->get_string() == "tool";
}

}  // namespace

Result<std::unique_ptr<InstantModel>> InstantModel::Start(Bench& bench) {
  std::unique_ptr<InstantModel> model(new InstantModel(bench));
  CAISSON_ASSIGN(net::Listener listener, net::ListenTcp(bench.loop, "127.0.0.1", 0));
  http::Handler handler = [self = model.get()](http::ServerRequest& request,
                                               http::ServerResponse& response) -> Task<void> {
    (void)co_await self->Answer(request, response);
  };
  model->server_ = std::make_unique<http::Server>(
      bench.loop, std::move(listener), http::ServerLimits(), std::move(handler),
      [](const Error& error) { return std::string(error.wire()); });
  model->server_->Start();
  return model;
}

Task<Result<void>> InstantModel::Answer(http::ServerRequest& request,
                                        http::ServerResponse& response) {
  CAISSON_CO_ASSIGN(std::string body, co_await request.ReadWholeBody(64 << 20));
  Stopwatch watch(bench_.clock);
  CAISSON_CO_ASSIGN(json::object conversation, json::ParseObject(body));
  std::string_view answer = AfterTool(conversation) ? kFinalText : kToolCall;
  CAISSON_CO_TRY(co_await response.Start(200, {{"Content-Type", "text/event-stream"}}));
  CAISSON_CO_TRY(co_await response.Write(answer));
  CAISSON_CO_TRY(co_await response.Finish());
  spent_ms_ += watch.Ms();
  calls_++;
  co_return Result<void>();
}

}  // namespace caisson::bench
