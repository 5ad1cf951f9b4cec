#include "telemetry/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>

namespace caisson::telemetry {
namespace {

using Labels = std::map<std::string, std::string>;

double Seconds(Micros took) { return static_cast<double>(took.count()) / 1e6; }

const prometheus::Histogram::BucketBoundaries& Buckets() {
  static const prometheus::Histogram::BucketBoundaries kBuckets{
      0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
  return kBuckets;
}

// Most steps take some tens of microseconds.
const prometheus::Histogram::BucketBoundaries& StepBuckets() {
  static const prometheus::Histogram::BucketBoundaries kBuckets{
      0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.1, 1};
  return kBuckets;
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests = prometheus::BuildCounter()
                                                          .Name("caisson_http_requests_total")
                                                          .Help("Requests answered.")
                                                          .Register(registry);
  prometheus::Family<prometheus::Histogram>& request_seconds =
      prometheus::BuildHistogram()
          .Name("caisson_http_request_seconds")
          .Help("From a request's header to the end of its answer; streams included.")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& runs = prometheus::BuildCounter()
                                                      .Name("caisson_runs_ended_total")
                                                      .Help("Runs by their end.")
                                                      .Register(registry);
  prometheus::Gauge& runs_active = prometheus::BuildGauge()
                                       .Name("caisson_runs_active")
                                       .Help("Runs under way.")
                                       .Register(registry)
                                       .Add({});
  prometheus::Family<prometheus::Counter>& created =
      prometheus::BuildCounter()
          .Name("caisson_sandboxes_created_total")
          .Help("Attempts to make a sandbox, by outcome.")
          .Register(registry);
  prometheus::Family<prometheus::Histogram>& create_seconds =
      prometheus::BuildHistogram()
          .Name("caisson_sandbox_create_seconds")
          .Help("From the request until the guest is ready.")
          .Register(registry);
  prometheus::Family<prometheus::Histogram>& step_seconds =
      prometheus::BuildHistogram()
          .Name("caisson_sandbox_create_step_seconds")
          .Help("The same, each step by itself.")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& ended = prometheus::BuildCounter()
                                                       .Name("caisson_sandboxes_ended_total")
                                                       .Help("Sandboxes that are gone, by how.")
                                                       .Register(registry);
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::HttpRequest(std::string_view method, std::string_view route, int status,
                          Micros took) {
  std::string path(route);
  impl_->requests
      .Add({{"method", std::string(method)}, {"route", path}, {"status", std::to_string(status)}})
      .Increment();
  impl_->request_seconds.Add({{"route", path}}, Buckets()).Observe(Seconds(took));
}
void Metrics::RunEnded(std::string_view status) {
  impl_->runs.Add({{"status", std::string(status)}}).Increment();
}
void Metrics::RunsActive(size_t count) { impl_->runs_active.Set(static_cast<double>(count)); }
void Metrics::SandboxCreated(std::string_view backend, std::string_view outcome, Micros took) {
  impl_->created.Add({{"backend", std::string(backend)}, {"outcome", std::string(outcome)}})
      .Increment();
  impl_->create_seconds.Add({{"backend", std::string(backend)}}, Buckets()).Observe(Seconds(took));
}
void Metrics::SandboxStep(std::string_view backend, std::string_view step, Micros took) {
  impl_->step_seconds
      .Add({{"backend", std::string(backend)}, {"step", std::string(step)}}, StepBuckets())
      .Observe(Seconds(took));
}
void Metrics::SandboxEnded(std::string_view backend, std::string_view status) {
  impl_->ended.Add({{"backend", std::string(backend)}, {"status", std::string(status)}})
      .Increment();
}

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace caisson::telemetry
