// The streams of caisson serve: many readers of one log, slow ones, gone ones, silent runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "fake_model.h"
#include "streaming_fixture.h"

namespace caisson::program_test {
namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAISSON_TEST_SANITIZED 1
#endif
#endif
#ifdef CAISSON_TEST_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// The numbers in the `id:` lines of whole messages, which are taken from the front of `text`.
std::vector<uint64_t> TakeIds(std::string& text) {
  std::vector<uint64_t> ids;
  size_t begin = 0;
  for (size_t end; (end = text.find("\n\n", begin)) != text.npos; begin = end + 2) {
    std::string_view message = std::string_view(text).substr(begin, end - begin);
    uint64_t id = 0;
    if (!message.starts_with("id: ")) continue;
    std::from_chars(message.data() + 4, message.data() + message.size(), id);
    ids.push_back(id);
  }
  text.erase(0, begin);
  return ids;
}

class StreamTest : public StreamingTest {
 public:
  std::string SendMessage(const std::string& session) {
    json::object sent = Send(session, "application/json").Json();
    return std::string(sent["run"].as_object()["id"].as_string());
  }
  std::string Path(const std::string& session, uint64_t after, const std::string& run) const {
    return fmt::format("/v1/sessions/{}/stream?after={}&until_end_of={}", session, after, run);
  }

  // KiB of this line of the server's /proc/PID/status.
  uint64_t Memory(std::string_view name) {
    std::ifstream file(fmt::format("/proc/{}/status", server_->service().pid()));
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(name)) return std::stoull(line.substr(name.size() + 1));
    }
    ADD_FAILURE() << "no " << name;
    return 0;
  }
  int Descriptors() {
    std::filesystem::directory_iterator all(fmt::format("/proc/{}/fd", server_->service().pid()));
    return static_cast<int>(std::distance(begin(all), end(all)));
  }
};

TEST_F(StreamTest, Case48_ReplayNeverCrossesSessions) {
  FakeModel model([](int, http::ServerRequest&, http::ServerResponse& response) {
    return Say(response, "one two three");
  });
  std::string own = MakeSession(model.url());
  std::string other = MakeSession(model.url());
  std::string run = SendMessage(own);
  std::string foreign_run;
  for (int i = 0; i < 3; i++) {
    foreign_run = SendMessage(other);
    ASSERT_TRUE(Eventually([&] { return RunStatus(other) == "done"; }));
  }
  ASSERT_TRUE(Eventually([&] { return RunStatus(own) == "done"; }));
  auto last_of = [&](const std::string& session) {
    return server_->Call("GET", "/v1/sessions/" + session).Json()["last_seq"].as_int64();
  };
  int64_t end = last_of(own);
  int64_t foreign_end = last_of(other);
  ASSERT_GT(foreign_end, end);
  std::string foreign_id = "\"session_id\":\"" + other;
  for (int64_t after = 1; after <= foreign_end; after++) {
    std::string events = fmt::format("/v1/sessions/{}/events?after={}", own, after);
    std::string number = std::to_string(after);
    for (const Server::Answer& answer :
         {server_->Call("GET", events),
          server_->Call("GET", Path(own, static_cast<uint64_t>(after), run), "",
                        "text/event-stream"),
          server_->Call("GET", Path(own, 0, run), "", "text/event-stream",
                        {{"Last-Event-ID", number}})}) {
      EXPECT_EQ(answer.body.find(foreign_id), std::string::npos) << after << ": " << answer.body;
      if (after > end) {
        EXPECT_EQ(answer.Text("code"), "invalid_argument") << after << ": " << answer.body;
        continue;
      }
      EXPECT_EQ(answer.status, 200) << after;
      size_t own_events = 0;
      std::string_view rest = answer.body;
      for (size_t at; (at = rest.find("\"session_id\":\"" + own)) != rest.npos; own_events++) {
        rest.remove_prefix(at + 1);
      }
      EXPECT_EQ(own_events, static_cast<size_t>(end - after)) << after << ": " << answer.body;
    }
  }
  // Nor does a run of the other session end this one's stream, or keep it open.
  EXPECT_EQ(server_->Call("GET", Path(own, 0, foreign_run), "", "text/event-stream").Text("code"),
            "not_found");
}

// What one reader has seen, over all its connections.
struct Reader {
  std::vector<uint64_t> ids;
  int connections = 0;
  bool ended = false;
  std::string fault;
};

TEST_F(StreamTest, Case49_SlowAndGoneReadersHarmNobody) {
  constexpr int kNeverReading = 8;
  constexpr int kLeaving = 8;
  constexpr int kNormal = 8;
  constexpr size_t kPieces = 6000;
  constexpr size_t kPieceBytes = 2048;
  Gate gate;
  FakeModel model([&](int call, http::ServerRequest& request,
                      http::ServerResponse& response) -> Task<Result<void>> {
    if (call == 0) co_return co_await Say(response, "warm");
    CAISSON_CO_TRY(co_await gate.Wait(request.stop()));
    CAISSON_CO_TRY(co_await response.Start(200, {{"Content-Type", "text/event-stream"}}));
    std::string piece = Piece({{"reasoning_content", std::string(kPieceBytes, 'x')}});
    for (size_t i = 0; i < kPieces; i++) CAISSON_CO_TRY(co_await response.Write(piece));
    CAISSON_CO_TRY(co_await response.Write(Piece({{"content", "done"}})));
    CAISSON_CO_TRY(co_await response.Write(kAnswerEnd));
    co_return co_await response.Finish();
  });
  // A run before, so that what is kept from run to run (the connection to the model) is there.
  std::string session = MakeSession(model.url());
  Send(session);
  ASSERT_EQ(RunStatus(session), "done");
  int descriptors = Descriptors();
  std::string run = SendMessage(session);
  std::ofstream(fmt::format("/proc/{}/clear_refs", server_->service().pid())) << 5;  // the peak
  uint64_t memory = Memory("VmRSS:");

  std::mt19937 random(49);
  std::vector<Opened> silent;
  std::vector<Reader> normal(kNormal);
  std::vector<Reader> leaving(kLeaving);
  int waiting = kNormal + kLeaving;
  // Reads to the end of the run; `leaves`: through many connections, each left at a random byte.
  auto read = [&](Reader& reader, bool leaves) -> Task<void> {
    while (!reader.ended && reader.fault.empty()) {
      uint64_t after = reader.ids.empty() ? 0 : reader.ids.back();
      auto opened = co_await Open("GET", Path(session, after, run));
      if (!opened || opened->head.status != 200) {
        reader.fault = opened ? "refused" : opened.error().ToString();
        break;
      }
      if (reader.connections++ == 0 && --waiting == 0) gate.Open();
      size_t left = leaves ? random() % 3'000'000 : SIZE_MAX;
      std::string text;
      while (left > 0) {
        auto piece = co_await opened->client->ReadBody(Soon());
        if (!piece) reader.fault = piece.error().ToString();
        reader.ended = piece && piece->empty();
        if (!piece || piece->empty()) break;
        text += piece->substr(0, left);
        left -= std::min(left, piece->size());
        std::vector<uint64_t> ids = TakeIds(text);
        reader.ids.insert(reader.ids.end(), ids.begin(), ids.end());
      }
    }
  };
  auto all = [&]() -> Task<Result<void>> {
    for (int i = 0; i < kNeverReading; i++) {
      CAISSON_CO_ASSIGN(Opened opened, co_await Open("GET", Path(session, 0, run)));
      silent.push_back(std::move(opened));
    }
    net::TaskGroup group;
    for (Reader& reader : normal) group.Start(read(reader, false));
    for (Reader& reader : leaving) group.Start(read(reader, true));
    co_await group.Join();
    co_return Result<void>();
  };
  auto followed = Run(all());
  uint64_t peak = Memory("VmHWM:");
  ASSERT_TRUE(followed.has_value()) << followed.error().ToString();

  json::object ended = NewestRun(session);
  EXPECT_EQ(ended["status"], "done");
  auto end = static_cast<uint64_t>(
      server_->Call("GET", "/v1/sessions/" + session).Json()["last_seq"].as_int64());
  ASSERT_GT(end, kPieces);
  int connections = 0;
  for (const std::vector<Reader>& readers : {normal, leaving}) {
    for (const Reader& reader : readers) {
      EXPECT_EQ(reader.fault, "");
      ASSERT_EQ(reader.ids.size(), end);
      for (uint64_t i = 0; i < end; i++) ASSERT_EQ(reader.ids[i], i + 1);
      connections += reader.connections;
    }
  }
  EXPECT_GT(connections, kNormal + 2 * kLeaving) << "nobody left";
  // What a reader may hold is a page of at most 256 events and its text, here some 1.3 MB, whether
  // it reads or not: 24 of them hold less than 32 MiB. Queues of what was not read would be 12 MB
  // for each that never reads, 96 MB in all.
  RecordProperty("memory_kib", std::to_string(peak - memory));
  RecordProperty("connections", connections);
  if (!kSanitized) EXPECT_LT(peak - memory, 32u << 10) << "KiB";

  silent.clear();
  EXPECT_TRUE(Eventually([&] { return Descriptors() <= descriptors; }))
      << Descriptors() << " after " << descriptors;
}

// Three streams at once that have nothing to tell: of a session without a run, of a run whose model
// is silent, and of one whose model thinks, to a reader who does not see that.
TEST_F(StreamTest, Case51_SilentStreamsAreKeptAlive) {
  Gate gate;
  FakeModel model([&](int call, http::ServerRequest& request,
                      http::ServerResponse& response) -> Task<Result<void>> {
    if (call == 0) {
      CAISSON_CO_TRY(co_await gate.Wait(request.stop()));
      co_return co_await Say(response, "at last");
    }
    CAISSON_CO_TRY(co_await response.Start(200, {{"Content-Type", "text/event-stream"}}));
    while (!gate.is_open()) {
      CAISSON_CO_TRY(co_await response.Write(Piece({{"reasoning_content", "hm"}})));
      Until pause(Deadline::After(net::Loop::Current()->clock(), Millis(50)), request.stop());
      CAISSON_CO_TRY(co_await net::Loop::Current()->Sleep(pause));
    }
    CAISSON_CO_TRY(co_await response.Write(kAnswerEnd));
    co_return co_await response.Finish();
  });
  std::string idle = MakeSession(model.url());
  std::string silent = MakeSession(model.url());
  std::string thinking = MakeSession(model.url());
  // The first bytes come before the model has said a word; then a comment.
  auto follow = [&](Opened& opened) -> Task<Result<std::string>> {
    EXPECT_EQ(opened.head.status, 200);
    EXPECT_EQ(opened.head.headers.Find("content-type"), "text/event-stream");
    EXPECT_EQ(opened.head.headers.Find("cache-control"), "no-cache, no-transform");
    EXPECT_EQ(opened.head.headers.Find("x-accel-buffering"), "no");
    CAISSON_CO_ASSIGN(std::string text, co_await ReadUntil(*opened.client, "retry: ", Soon()));
    // Promised every 15 seconds; the rest is for a loaded host.
    Until until(Deadline::After(clock_, Millis(30'000)));
    CAISSON_CO_ASSIGN(std::string rest,
                      co_await ReadUntil(*opened.client, ": keep-alive\n\n", until));
    co_return text + rest;
  };
  Opened of_silent =
      Run(Open("POST", "/v1/sessions/" + silent + "/messages", R"({"content":"go"})")).value();
  ASSERT_TRUE(Eventually([&] { return model.calls() == 1; }));
  SendMessage(thinking);
  ASSERT_TRUE(Eventually([&] { return model.calls() == 2; }));
  Opened of_idle = Run(Open("GET", "/v1/sessions/" + idle + "/stream")).value();
  Opened of_thinking =
      Run(Open("GET", "/v1/sessions/" + thinking + "/stream?visibility=end_user")).value();
  Result<std::string> texts[3];
  auto all = [&]() -> Task<Result<void>> {
    net::TaskGroup group;
    Opened* streams[] = {&of_idle, &of_silent, &of_thinking};
    for (size_t i = 0; i < 3; i++) {
      group.Start([](Task<Result<std::string>> task, Result<std::string>& into) -> Task<void> {
        into = co_await std::move(task);
      }(follow(*streams[i]), texts[i]));
    }
    co_await group.Join();
    co_return Result<void>();
  };
  (void)Run(all());
  for (Result<std::string>& text : texts) {
    ASSERT_TRUE(text.has_value()) << text.error().ToString();
  }
  EXPECT_EQ(*texts[0], "retry: 3000\n\n: keep-alive\n\n");
  EXPECT_EQ(texts[2]->find("reasoning"), std::string::npos);
  gate.Open();
  auto rest = Run(of_silent.client->ReadWholeBody(1 << 20, Soon()));
  ASSERT_TRUE(rest.has_value()) << rest.error().ToString();
  EXPECT_NE(rest->find("\"to_status\":\"done\""), std::string::npos) << *rest;
  EXPECT_TRUE(Eventually([&] { return RunStatus(thinking) == "done"; })) << RunStatus(thinking);
}

}  // namespace
}  // namespace caisson::program_test
