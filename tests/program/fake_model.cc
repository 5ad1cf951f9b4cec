#include "fake_model.h"

#include <utility>

namespace caisson::program_test {

Task<Result<void>> Gate::Wait(std::stop_token stop) const {
  net::Loop& loop = *net::Loop::Current();
  while (!open_) {
    Until until(Deadline::After(loop.clock(), Millis(5)), stop);
    CAISSON_CO_TRY(co_await loop.Sleep(until));
  }
  co_return Result<void>();
}

FakeModel::FakeModel(Script script) : script_(std::move(script)) {
  thread_ = std::thread([this] { (void)net::RunUntilDone(loop_, Serve()); });
  port_.wait(0);
}

FakeModel::~FakeModel() {
  loop_.Post([this] { stop_.Set(); });
  thread_.join();
}

Task<Result<void>> FakeModel::Serve() {
  http::Handler handler = [this](http::ServerRequest& request,
                                 http::ServerResponse& response) -> Task<void> {
    int call = calls_++;
    // Nothing is left of it in the way of the next request.
    if (!co_await request.ReadWholeBody(64 << 20)) co_return;
    (void)co_await script_(call, request, response);
  };
  http::Server server(loop_, net::ListenTcp(loop_, "127.0.0.1", 0).value(), {}, handler,
                      [](const Error& error) { return std::string(error.wire()); });
  server.Start();
  port_ = server.port();
  port_.notify_all();
  (void)co_await stop_.Wait(Until(Deadline::Never()));
  co_await server.Drain(Deadline::After(clock_, Millis(1000)));
  co_return Result<void>();
}

std::string Piece(const json::object& delta) {
  json::object choice{{"index", 0}, {"delta", delta}, {"finish_reason", nullptr}};
  return "data: " + json::Serialize(json::object{{"choices", json::array{std::move(choice)}}}) +
         "\n\n";
}

Task<Result<void>> Say(http::ServerResponse& response, std::string text) {
  CAISSON_CO_TRY(co_await response.Start(200, {{"Content-Type", "text/event-stream"}}));
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t cut = std::min(rest.find(' '), rest.size() - 1) + 1;
    CAISSON_CO_TRY(co_await response.Write(Piece({{"content", rest.substr(0, cut)}})));
    rest.remove_prefix(cut);
  }
  CAISSON_CO_TRY(co_await response.Write(kAnswerEnd));
  co_return co_await response.Finish();
}

}  // namespace caisson::program_test
