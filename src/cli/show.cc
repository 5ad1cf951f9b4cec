// caisson sessions|agents|providers|sandboxes list|show, sessions release, sandboxes
// create|explain|usage|delete, runs cancel, events.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/api_client.h"
#include "cli/command.h"
#include "cli/event_printer.h"
#include "http/message.h"
#include "json/reader.h"
#include "net/loop.h"

namespace caisson::cli {
namespace {

struct Common {
  std::string server = ApiClient::DefaultUrl();
  bool json = false;
  std::string id;
};

// A resource with the columns of its list.
struct Resource {
  const char* name;
  const char* id_field;
  std::vector<const char*> columns;
};

std::string Field(const json::object& item, const char* name) {
  const json::value* value = item.if_contains(name);
  if (value == nullptr) return "";
  if (value->is_string()) return Escape(value->get_string());
  return json::Serialize(*value);
}

void PrintTable(const std::vector<const char*>& columns, const json::array& items) {
  std::vector<size_t> widths;
  for (const char* column : columns) widths.push_back(std::string_view(column).size());
  for (const json::value& item : items) {
    for (size_t i = 0; i < columns.size(); i++) {
      widths[i] = std::max(widths[i], Field(item.as_object(), columns[i]).size());
    }
  }
  auto row = [&](auto cell) {
    for (size_t i = 0; i < columns.size(); i++) fmt::print("{:<{}}  ", cell(i), widths[i]);
    fmt::print("\n");
  };
  row([&](size_t i) { return std::string(columns[i]); });
  for (const json::value& item : items) {
    row([&](size_t i) { return Field(item.as_object(), columns[i]); });
  }
}

Task<Result<void>> List(ApiClient& api, const Resource& resource, bool as_json) {
  std::string cursor;
  json::array all;
  do {
    std::string path = fmt::format("/v1/{}?limit=1000", resource.name);
    if (!cursor.empty()) path += "&cursor=" + http::EncodeQueryValue(cursor);
    CAISSON_CO_ASSIGN(json::object page, co_await api.Call("GET", path));
    json::ObjectReader reader(page);
    if (const json::array* items = reader.Array("items"))
      all.insert(all.end(), items->begin(), items->end());
    cursor = reader.String("next_cursor").value_or("");
  } while (!cursor.empty());
  if (as_json) {
    fmt::print("{}\n", json::Serialize(json::value(std::move(all))));
  } else {
    PrintTable(resource.columns, all);
  }
  co_return Result<void>();
}

void PrintItem(const json::object& item, bool as_json) {
  if (as_json) {
    fmt::print("{}\n", json::Serialize(item));
    return;
  }
  size_t width = 14;
  for (const auto& member : item) width = std::max(width, member.key().size());
  for (const auto& member : item) {
    std::string name(member.key());
    fmt::print("{:<{}} {}\n", name, width, Field(item, name.c_str()));
  }
}

Task<Result<void>> Ask(ApiClient& api, std::string method, std::string path, bool as_json) {
  CAISSON_CO_ASSIGN(json::object item, co_await api.Call(std::move(method), std::move(path)));
  PrintItem(item, as_json);
  co_return Result<void>();
}

// A refusal is printed like a permission, and ends with an error.
Task<Result<void>> PostSpec(ApiClient& api, std::string path, std::string spec, bool as_json) {
  CAISSON_CO_ASSIGN(json::object item, co_await api.Call("POST", std::move(path), std::move(spec)));
  PrintItem(item, as_json);
  const json::value* allowed = item.if_contains("allowed");
  if (allowed == nullptr || *allowed == json::value(true)) co_return Result<void>();
  co_return Fail(ErrorCode::kConflict, "the server would not make this sandbox");
}

Task<Result<void>> PrintEvents(ApiClient& api, std::string session, bool follow, bool as_json) {
  EventPrinter printer(as_json);
  CAISSON_CO_ASSIGN(json::object row, co_await api.Call("GET", "/v1/sessions/" + session));
  int64_t last = json::ObjectReader(row).Int("last_seq", 0, INT64_MAX).value_or(0);
  if (!follow && last == 0) co_return Result<void>();
  co_return co_await api.Stream(
      "GET", fmt::format("/v1/sessions/{}/stream", session), "", [&](const auto& event) {
        printer.Print(event);
        if (follow) return true;
        auto envelope = json::ParseObject(event.data);
        return envelope &&
               json::ObjectReader(*envelope).Int("seq", 0, INT64_MAX).value_or(0) < last;
      });
}

int Finish(Host& host, const Common& common,
           const std::function<Task<Result<void>>(ApiClient&)>& work) {
  net::Loop loop(host.clock);
  ApiClient api(loop, host.clock, common.server);
  auto result = net::RunUntilDone(loop, work(api));
  if (!result) PrintError(result.error());
  return result ? kExitOk : kExitFailed;
}

void AddCommon(CLI::App* command, const std::shared_ptr<Common>& common) {
  command->add_option("--server", common->server, "the server's address (CAISSON_URL)")
      ->capture_default_str();
  command->add_flag("--json", common->json, "print JSON");
}

// One sub-command that asks the server once about a thing named by `id`.
void AddAsk(CLI::App* group, const char* name, const char* help, std::string method,
            std::string pattern, Host& host, int& exit_code) {
  auto common = std::make_shared<Common>();
  auto* command = group->add_subcommand(name, help);
  AddCommon(command, common);
  command->add_option("id", common->id, "which one")->required();
  command->callback([=, &host, &exit_code] {
    std::string path = fmt::format(fmt::runtime(pattern), http::EncodeQueryValue(common->id));
    exit_code =
        Finish(host, *common, [=](ApiClient& api) { return Ask(api, method, path, common->json); });
  });
}

// One sub-command that sends a spec.
void AddSpec(CLI::App* group, const char* name, const char* help, std::string path, Host& host,
             int& exit_code) {
  auto common = std::make_shared<Common>();
  auto spec = std::make_shared<std::string>("{}");
  auto* command = group->add_subcommand(name, help);
  AddCommon(command, common);
  command->add_option("spec", *spec, "what it is to be, JSON as for POST /v1/sandboxes")
      ->capture_default_str();
  command->callback([=, &host, &exit_code] {
    exit_code = Finish(host, *common,
                       [=](ApiClient& api) { return PostSpec(api, path, *spec, common->json); });
  });
}

}  // namespace

void AddShow(CLI::App& app, Host& host, int& exit_code) {
  static const std::vector<Resource> kResources{
      {"sessions", "id", {"id", "agent", "status", "last_seq", "created_at"}},
      {"agents", "name", {"name", "revision", "updated_at"}},
      {"providers", "name", {"name", "revision", "updated_at"}},
      {"sandboxes", "id", {"id", "status", "profile", "session_id", "created_at"}},
  };
  for (const Resource& resource : kResources) {
    auto* group = app.add_subcommand(resource.name, fmt::format("List and show {}", resource.name));
    group->require_subcommand(1);
    auto common = std::make_shared<Common>();
    auto* list = group->add_subcommand("list", fmt::format("List {}", resource.name));
    AddCommon(list, common);
    list->callback([common, &resource, &host, &exit_code] {
      exit_code =
          Finish(host, *common, [&](ApiClient& api) { return List(api, resource, common->json); });
    });
    AddAsk(group, "show", "Show one", "GET", fmt::format("/v1/{}/{{}}", resource.name), host,
           exit_code);
    if (std::string_view(resource.name) == "sessions") {
      AddAsk(group, "release", "End the sandbox of one, unless it is busy; the session stays",
             "POST", "/v1/sessions/{}/sandboxes:release", host, exit_code);
    }
    if (std::string_view(resource.name) == "sandboxes") {
      AddSpec(group, "create", "Make one", "/v1/sandboxes", host, exit_code);
      AddSpec(group, "explain", "Say whether one would be made, and why not; makes nothing",
              "/v1/sandboxes:explain", host, exit_code);
      AddAsk(group, "usage", "Show what one uses now, beside its limits", "GET",
             "/v1/sandboxes/{}/usage", host, exit_code);
      AddAsk(group, "delete", "End one; prints the receipt", "DELETE", "/v1/sandboxes/{}", host,
             exit_code);
    }
  }
  auto* runs = app.add_subcommand("runs", "Show and cancel runs");
  runs->require_subcommand(1);
  AddAsk(runs, "show", "Show one", "GET", "/v1/runs/{}", host, exit_code);
  AddAsk(runs, "cancel", "Cancel one", "POST", "/v1/runs/{}/cancel", host, exit_code);

  auto common = std::make_shared<Common>();
  auto follow = std::make_shared<bool>(false);
  auto* events = app.add_subcommand("events", "Print the log of a session");
  AddCommon(events, common);
  events->add_option("session", common->id, "the session's id")->required();
  events->add_flag("--follow,-f", *follow, "go on with what comes");
  events->callback([=, &host, &exit_code] {
    exit_code = Finish(host, *common, [=](ApiClient& api) {
      return PrintEvents(api, common->id, *follow, common->json);
    });
  });
}

}  // namespace caisson::cli
