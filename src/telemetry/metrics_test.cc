#include "telemetry/metrics.h"

#include <gtest/gtest.h>

namespace caisson::telemetry {
namespace {

TEST(Metrics, CountsByLabels) {
  Metrics metrics;
  metrics.HttpRequest("GET", "/health", 200, Micros(800));
  metrics.HttpRequest("GET", "/health", 200, Micros(800));
  metrics.RunsActive(3);
  metrics.RunEnded("done");
  metrics.SandboxCreated("local", "ready", Micros(2000));
  metrics.SandboxEnded("local", "released");
  std::string text = metrics.Text();
  for (const char* line :
       {R"(caisson_http_requests_total{method="GET",route="/health",status="200"} 2)",
        R"(caisson_http_request_seconds_bucket{route="/health",le="0.001"} 2)",
        "caisson_runs_active 3", R"(caisson_runs_ended_total{status="done"} 1)",
        R"(caisson_sandboxes_created_total{backend="local",outcome="ready"} 1)",
        R"(caisson_sandboxes_ended_total{backend="local",status="released"} 1)"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

}  // namespace
}  // namespace caisson::telemetry
