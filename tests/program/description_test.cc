// /openapi.json against what the server really answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "fake_model.h"
#include "guest/protocol.h"
#include "guest/tar.h"
#include "server_fixture.h"

namespace caisson::program_test {
namespace {

class DescriptionTest : public ServerTest {
 public:
  void SetUp() override {
    ServerTest::SetUp();
    if (!IsSkipped()) description_ = server_->Call("GET", "/openapi.json").Json();
  }

  // Calls the operation with `path` in the place of its pattern, and compares the answer with the
  // description.
  json::object Ask(const std::string& method, const std::string& pattern, std::string path,
                   const std::string& body = "", const http::Headers& headers = {}) {
    std::string verb = method;
    for (char& c : verb) c = static_cast<char>(c - 'A' + 'a');
    const json::value* item = description_["paths"].as_object().if_contains(pattern);
    const json::value* operation = item == nullptr ? nullptr : item->as_object().if_contains(verb);
    EXPECT_TRUE(operation != nullptr) << method << " " << pattern;
    if (operation == nullptr) return {};
    Server::Answer answer = server_->Call(method, path, body, "application/json", headers);
    EXPECT_EQ(answer.status / 100, 2) << method << " " << path << ": " << answer.body;
    const json::object& success = operation->at("responses").at("2XX").as_object();
    auto parsed = json::Parse(answer.body);
    EXPECT_TRUE(parsed.has_value()) << method << " " << path << ": " << answer.body;
    if (!parsed || !success.contains("content")) return {};
    Compare(success.at("content").at("application/json").at("schema"), *parsed,
            method + " " + pattern);
    asked_.insert(method + " " + pattern);
    return parsed->is_object() ? parsed->as_object() : json::object();
  }
  // The same for the pattern that is the path.
  json::object AskPath(const std::string& method, const std::string& path,
                       const std::string& body = "") {
    return Ask(method, path, path, body);
  }
  std::string Id(const json::object& object) { return std::string(object.at("id").as_string()); }

  // The part of JSON Schema that the description uses. An object with declared properties has no
  // others: what the server gives and nobody is told is a fault of the description.
  void Compare(const json::value& schema, const json::value& value, const std::string& where) {
    const json::object& rules = schema.as_object();
    if (const json::value* reference = rules.if_contains("$ref")) {
      std::string name(reference->as_string());
      name = name.substr(name.rfind('/') + 1);
      const json::object& all = description_["components"].at("schemas").as_object();
      ASSERT_TRUE(all.contains(name)) << where << ": no component " << name;
      return Compare(all.at(name), value, where);
    }
    if (const json::value* choices = rules.if_contains("anyOf")) {
      // "This, or null" is the only choice that the description offers.
      return value.is_null() ? Compare(choices->at(1), value, where)
                             : Compare(choices->at(0), value, where);
    }
    const json::value* type = rules.if_contains("type");
    const json::value* words = rules.if_contains("enum");
    ASSERT_TRUE(type != nullptr || words != nullptr) << where << ": the schema says nothing";
    if (type != nullptr) {
      EXPECT_TRUE(HasType(value, type->as_string()))
          << where << ": " << value << " is not of type " << *type;
    }
    if (words != nullptr) {
      EXPECT_TRUE(std::ranges::find(words->as_array(), value) != words->as_array().end())
          << where << ": " << value << " is not one of " << *words;
    }
    if (value.is_array() && rules.contains("items")) {
      for (const json::value& item : value.as_array()) {
        Compare(rules.at("items"), item, where + "[]");
      }
    }
    if (value.is_object() && rules.contains("properties")) CompareFields(rules, value, where);
  }

  void CompareFields(const json::object& rules, const json::value& value,
                     const std::string& where) {
    const json::object& properties = rules.at("properties").as_object();
    if (const json::value* required = rules.if_contains("required")) {
      for (const json::value& name : required->as_array()) {
        EXPECT_TRUE(value.as_object().contains(name.as_string()))
            << where << " lacks " << name << ": " << value;
      }
    }
    for (const auto& field : value.as_object()) {
      std::string name(field.key());
      EXPECT_TRUE(properties.contains(name)) << where << "." << name << " is not described";
      if (!properties.contains(name)) continue;
      seen_.insert(where + "." + name);
      Compare(properties.at(name), field.value(), where + "." + name);
    }
  }

  static bool HasType(const json::value& value, std::string_view type) {
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_int64() || value.is_uint64();
    if (type == "number") return value.is_number();
    if (type == "boolean") return value.is_bool();
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    return type == "null" && value.is_null();
  }

  json::object description_;
  std::set<std::string> asked_;
  std::set<std::string> seen_;  // fields that were there
};

void AskHealth(DescriptionTest& test) {
  test.AskPath("GET", "/health");
  test.AskPath("GET", "/ready");
  test.AskPath("GET", "/v1/capabilities");
  test.AskPath("GET", "/openapi.json");
}

// `text` is what the definition says, without its name.
void AskDefinitions(DescriptionTest& test, const std::string& kind, const std::string& text) {
  std::string one = kind + "/{name}";
  http::Headers revision{{"If-Match", "\"1\""}};
  test.AskPath("POST", kind, R"({"name":"x",)" + text.substr(1));
  test.AskPath("GET", kind);
  test.Ask("GET", one, kind + "/x");
  test.Ask("PUT", one, kind + "/x", text, revision);
  test.Ask("PUT", one, kind + "/y", text);
}

constexpr std::string_view kMakeOddFiles = R"sh(ln -s a.txt link; mkfifo pipe
touch "$(printf 'x\377')"; printf 'one\377one\n' > y; ln -s "$(printf '\377')" z)sh";

TEST_F(DescriptionTest, EveryAnswerIsAsDescribed) {
  FakeModel model([](int call, http::ServerRequest&, http::ServerResponse& response) {
    if (call == 0) return Say(response, "hello");
    return response.Send(400, {{"Content-Type", "application/json"}}, "{}");
  });
  AskHealth(*this);
  AskDefinitions(*this, "/v1/providers",
                 json::Serialize(json::object{{"protocol", "openai"},
                                              {"base_url", model.url()},
                                              {"model", "m"},
                                              {"description", "a model"},
                                              {"timeout_ms", 10'000},
                                              {"max_retries", 0}}));
  AskDefinitions(*this, "/v1/agents",
                 R"({"provider":"x","description":"an agent","system_prompt":"Be kind.",)"
                 R"("temperature":0.5,"max_tokens":100,"max_steps":3,"timeout_ms":60000,)"
                 R"("excluded_tools":["glob"],"blocked_tools":["ls"]})");

  std::string session =
      Id(AskPath("POST", "/v1/sessions", R"({"agent":"x","title":"t","metadata":{"k":[1]}})"));
  std::string sessions = "/v1/sessions/{id}";
  std::string here = "/v1/sessions/" + session;
  std::string run;
  for (int i = 0; i < 2; i++) {  // one that is done, one that failed
    json::object submitted =
        Ask("POST", sessions + "/messages", here + "/messages", R"({"content":"go"})");
    Ask("GET", sessions, here);
    run = Id(submitted["run"].as_object());
    Ask("GET", "/v1/runs/{id}", "/v1/runs/" + run);
    ASSERT_TRUE(Eventually([&] { return RunStatus(session) == (i == 0 ? "done" : "failed"); }));
    Ask("GET", "/v1/runs/{id}", "/v1/runs/" + run);
  }
  Ask("POST", "/v1/runs/{id}/cancel", "/v1/runs/" + run + "/cancel");
  Ask("GET", sessions, here);
  AskPath("GET", "/v1/sessions");
  Ask("GET", sessions + "/runs", here + "/runs?limit=1");
  Ask("GET", sessions + "/events", here + "/events");

  std::string sandbox =
      Id(AskPath("POST", "/v1/sandboxes", fmt::format(R"({{"session_id":"{}"}})", session)));
  AskPath("POST", "/v1/sandboxes",
          R"({"env":{"A":"b"},"resources":{"cpus":0.5},"transfer":{"in":{"max_files":2}}})");
  std::string sandboxes = "/v1/sandboxes/{id}";
  std::string with_set =
      "/v1/sandboxes/" + Id(AskPath("POST", "/v1/sandboxes", R"({"read_only_sets":["/s"]})"));
  constexpr std::string_view kHash =  // of "x"
      "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
  std::string apply =
      fmt::format(R"({{"path":"/s","files":[{{"path":"a","sha256":"{}"}}]}})", kHash);
  Ask("POST", sandboxes + "/sets/apply", with_set + "/sets/apply", apply);
  Ask("PUT", sandboxes + "/sets/blob",
      fmt::format("{}/sets/blob?path=/s&sha256={}", with_set, kHash), "x");
  Ask("POST", sandboxes + "/sets/apply", with_set + "/sets/apply", apply);
  Ask("GET", sandboxes + "/sets", with_set + "/sets?path=/s");
  std::string box = "/v1/sandboxes/" + sandbox;
  auto in_box = [&](const std::string& method, const std::string& path, const std::string& query,
                    const std::string& body = "") {
    return Ask(method, sandboxes + path, box + path + query, body);
  };
  in_box("GET", "", "");
  in_box("GET", "/usage", "");
  AskPath("GET", "/v1/sandboxes");
  for (const char* command :
       {"echo hi", R"(printf '\377'; printf '\377' >&2)", "kill -9 $$", "yes | head -c 200000"}) {
    in_box("POST", "/exec", "", json::Serialize(json::object{{"command", command}}));
  }
  in_box("POST", "/exec", "", R"({"command":"echo kept","keep_bytes":100})");
  in_box("PUT", "/files/content", "?path=a.txt", "one\ntwo\n");
  in_box("POST", "/exec", "", json::Serialize(json::object{{"command", kMakeOddFiles}}));
  in_box("GET", "/files/stat", "?path=a.txt&media_type=1");
  in_box("GET", "/files/stat", "?path=link");
  in_box("GET", "/files/list", "?path=.");
  in_box("POST", "/files/edit", "", R"({"path":"a.txt","old":"two","new":"2"})");
  in_box("POST", "/files/edit", "", R"({"path":"a.txt","old":"one","new":"1","dry_run":true})");
  in_box("POST", "/files/mkdir", "", R"({"path":"dir"})");
  in_box("POST", "/files/move", "", R"({"from":"a.txt","to":"dir/b.txt"})");
  in_box("POST", "/files/copy", "", R"({"from":"dir","to":"copy","recursive":true})");
  auto record = [](guest::RecordType type, std::string_view payload) {
    auto header = guest::EncodeRecordHeader({type, static_cast<uint32_t>(payload.size()), 0});
    return std::string(header.begin(), header.end()) + std::string(payload);
  };
  in_box("POST", "/files/upload", "",
         record(guest::RecordType::kFile, R"({"path":"up"})") +
             record(guest::RecordType::kFileBytes, "bytes") +
             record(guest::RecordType::kFile, R"({"path":"dir"})"));

  std::string archive = guest::TarHeader({"in", guest::TarEntry::Type::kFile, "", 0, 0644, 0}) +
                        guest::TarHeader({"../out", guest::TarEntry::Type::kFile, "", 0, 0644, 0});
  in_box("PUT", "/files/archive", "?path=dir", archive + guest::TarEnd());

  AskPath("POST", "/v1/sandboxes:explain", R"({"ttl_ms":5000})");
  AskPath("POST", "/v1/sandboxes:explain", R"({"network":"unrestricted"})");
  in_box("POST", "/execs", "", R"({"id":"one","command":"cat","interactive":true})");
  in_box("POST", "/execs", "", R"({"id":"two","argv":["sleep","100"],"pty":{"rows":5}})");
  auto with_exec = [&](const std::string& method, const std::string& exec, const std::string& rest,
                       const std::string& query, const std::string& body = "") {
    return Ask(method, sandboxes + "/execs/{exec}" + rest, box + "/execs/" + exec + rest + query,
               body);
  };
  with_exec("POST", "one", "/stdin", "?eof=1", "hello");
  ASSERT_TRUE(Eventually(
      [&] { return with_exec("GET", "one", "", "").at("state").as_string() == "ended"; }));
  with_exec("POST", "two", "/resize", "", R"({"rows":30,"cols":90})");
  with_exec("POST", "two", "/signal", "", R"({"signal":"STOP"})");
  in_box("GET", "/execs", "");
  with_exec("DELETE", "two", "", "");

  in_box("POST", "/search/glob", "", R"({"path":".","pattern":"*","directories":true})");
  in_box("POST", "/search/glob", "", R"({"path":".","pattern":"*","limit":1})");
  in_box("POST", "/search/grep", "", R"({"path":".","pattern":"one","max_line_bytes":3})");
  in_box("POST", "/search/grep", "", R"({"path":".","pattern":"one","limit":1})");
  in_box("POST", "/search/grep", "", R"({"path":".","pattern":"^2$","regex":true,"before":1})");
  in_box("POST", "/files/remove", "", R"({"path":"dir","recursive":true})");
  in_box("DELETE", "", "");
  Ask("POST", "/v1/sessions/{id}/sandboxes:release", here + "/sandboxes:release", "{}");
  in_box("GET", "", "");
  AskPath("GET", "/v1/sandboxes");

  // Nothing that answers JSON was left out.
  for (const auto& path : description_["paths"].as_object()) {
    for (const auto& operation : path.value().as_object()) {
      const json::object& success = operation.value().at("responses").at("2XX").as_object();
      const json::value* content = success.if_contains("content");
      if (content == nullptr || !content->as_object().contains("application/json")) continue;
      std::string method(operation.key());
      for (char& c : method) c = static_cast<char>(c - 'a' + 'A');
      EXPECT_TRUE(asked_.contains(method + " " + std::string(path.key())))
          << method << " " << path.key() << " was not asked";
    }
  }
  for (const char* optional :
       {"POST /v1/sandboxes/{id}/exec.stdout_base64", "GET /v1/runs/{id}.error.code",
        "GET /v1/sessions/{id}.active_run", "GET /v1/sandboxes/{id}/files/list.entries[].target",
        "POST /v1/sandboxes/{id}/search/grep.matches[].cut",
        "POST /v1/sandboxes/{id}/search/grep.matches[].context",
        "POST /v1/sandboxes/{id}/search/glob.reason",
        "PUT /v1/sandboxes/{id}/files/archive.failures[].code",
        "POST /v1/sandboxes/{id}/files/upload.results[].code", "POST /v1/sandboxes:explain.detail",
        "GET /v1/sandboxes/{id}/execs/{exec}.exit.code",
        "POST /v1/sandboxes/{id}/exec.kept.stdout"}) {
    EXPECT_TRUE(seen_.contains(optional)) << optional << " was not seen";
  }
}

}  // namespace
}  // namespace caisson::program_test
