#include "sandbox/backends/local/launcher_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/fd_passing.h"
#include "base/syscall.h"

namespace caisson::sandbox::local {
namespace {

// The launcher gives up on a creation after 10 s; its answer comes in any case.
constexpr Millis kCreatePatience{20'000};

Error LauncherLost() {
  return Error{ErrorCode::kUnavailable,
               "the launcher process has ended; restart the server and see its log",
               {},
               std::nullopt};
}

Result<void> SendPacket(int socket, const launcher::Request& request, std::string_view text,
                        const std::vector<int>& descriptors) {
  std::array<iovec, 2> parts{iovec{const_cast<launcher::Request*>(&request), sizeof request},
                             iovec{const_cast<char*>(text.data()), text.size()}};
  if (SendWithFds(socket, std::span(parts).first(text.empty() ? 1 : 2), descriptors) >= 0) {
    return {};
  }
  return Fail(ErrnoError(errno, "send to the launcher"));
}

}  // namespace

LauncherClient::LauncherClient(net::Loop& loop, ChildProcess process, net::Descriptor socket)
    : loop_(loop), process_(std::move(process)), socket_(std::move(socket)) {}
LauncherClient::~LauncherClient() = default;

Result<std::unique_ptr<LauncherClient>> LauncherClient::Start(net::Loop& loop,
                                                              const std::string& program,
                                                              const std::string& state_dir,
                                                              Mode mode) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Fail(ErrnoError(errno, "make the launcher's socket"));
  }
  UniqueFd own(ends[0]);
  UniqueFd theirs(ends[1]);
  SpawnSpec spec;
  spec.program = program;
  spec.arguments = {"--state-dir", state_dir, mode == Mode::kKeep ? "--keep" : "--ephemeral"};
  spec.descriptors = {{2, 2}, {launcher::kControlFd, theirs.get()}};
  // A session of its own: a Ctrl-C at the terminal must not end it before it has cleaned up.
  spec.new_session = true;
  CAISSON_ASSIGN(ChildProcess process, Spawn(spec));
  CAISSON_ASSIGN(net::Descriptor socket, net::Descriptor::Make(loop, std::move(own)));
  std::unique_ptr<LauncherClient> client(
      new LauncherClient(loop, std::move(process), std::move(socket)));
  loop.Post([raw = client.get()] { raw->tasks_.Start(raw->ReadAnswers()); });
  return client;
}

Result<bool> LauncherClient::ReadOneAnswer() {
  std::array<char, launcher::kMaxMessageBytes> buffer;
  iovec part{buffer.data(), buffer.size()};
  Answer answer;
  ReceivedMessage received = ReceiveWithFds(socket_->fd(), {&part, 1}, {&answer.descriptor, 1});
  if (received.size < 0) {
    if (errno == EAGAIN) return true;
    return Fail(ErrnoError(errno, "receive from the launcher"));
  }
  if (received.size == 0) return false;
  auto size = static_cast<size_t>(received.size);
  if (size < sizeof answer.reply) return Fail(ErrorCode::kProtocol, "a short launcher message");
  std::memcpy(&answer.reply, buffer.data(), sizeof answer.reply);
  answer.text.assign(buffer.data() + sizeof answer.reply, size - sizeof answer.reply);
  auto found = pending_.find(answer.reply.id);
  if (found == pending_.end()) return true;  // its asker has given up: an idempotent question
  std::shared_ptr<Pending> pending = std::move(found->second);
  pending_.erase(found);
  pending->answer = std::move(answer);
  pending->arrived.Set();
  return true;
}

Task<void> LauncherClient::ReadAnswers() {
  for (;;) {
    auto more = ReadOneAnswer();
    if (!more || !*more) break;
    if (!co_await socket_->WaitReadable(Until(Deadline::Never(), tasks_.stop()))) break;
  }
  lost_ = true;
  for (auto& [id, pending] : pending_) pending->arrived.Set();
  pending_.clear();
}

Task<Result<LauncherClient::Answer>> LauncherClient::Ask(launcher::Request request,
                                                         std::string text,
                                                         std::vector<int> descriptors,
                                                         Until until) {
  if (lost_) co_return Fail(LauncherLost());
  request.id = next_id_++;
  request.text_bytes = static_cast<uint32_t>(text.size());
  auto pending = std::make_shared<Pending>(loop_);
  pending_[request.id] = pending;
  for (;;) {
    auto sent = SendPacket(socket_->fd(), request, text, descriptors);
    if (sent) break;
    if (sent.error().message.ends_with("EAGAIN")) {
      auto writable = co_await socket_->WaitWritable(until);
      if (writable) continue;
      sent = std::move(writable);
    }
    pending_.erase(request.id);
    co_return Fail(sent.error());
  }
  auto arrived = co_await pending->arrived.Wait(until);
  if (!arrived) {
    pending_.erase(request.id);
    co_return Fail(arrived.error());
  }
  if (!pending->answer.has_value()) co_return Fail(LauncherLost());
  co_return std::move(*pending->answer);
}

Task<Result<LauncherClient::Created>> LauncherClient::Create(const launcher::LaunchPlan& plan,
                                                             CreateInput input) {
  CAISSON_CO_ASSIGN(UniqueFd plan_file, MakeSealedMemFd("plan", launcher::EncodePlan(plan)));
  std::vector<int> descriptors(launcher::kCreateFdCount);
  descriptors[launcher::kFdPlan] = plan_file.get();
  descriptors[launcher::kFdGuest] = input.guest_program;
  descriptors[launcher::kFdListen] = input.listen_socket;
  descriptors[launcher::kFdToken] = input.token_file;
  descriptors[launcher::kFdConfig] = input.config_file;
  descriptors[launcher::kFdFilter] = input.command_filter;
  launcher::Request request;
  request.op = launcher::Op::kCreate;
  CAISSON_CO_ASSIGN(Answer answer,
                    co_await Ask(request, "", std::move(descriptors),
                                 Until(Deadline::After(loop_.clock(), kCreatePatience))));
  const launcher::Reply& reply = answer.reply;
  if (reply.status != launcher::Status::kOk) {
    Error error{ErrorCode::kLaunchFailed,
                fmt::format("making the sandbox failed at step \"{}\" with {}",
                            launcher::NameOf(reply.step), ErrnoName(reply.error_number)),
                answer.text, std::nullopt};
    co_return Fail(std::move(error));
  }
  Created created;
  created.process = {reply.pid, reply.start_time};
  created.pidfd = std::move(answer.descriptor);
  for (size_t i = 0; i < launcher::kLaunchStepNames.size(); i++) {
    if (reply.step_us[i] > 0) {
      created.steps.emplace_back(static_cast<launcher::LaunchStep>(i), Micros(reply.step_us[i]));
    }
  }
  co_return created;
}

Task<Result<bool>> LauncherClient::Terminate(ProcessRef process,
                                             std::vector<std::string> cgroup_dirs, Until until) {
  launcher::Request request;
  request.op = launcher::Op::kTerminate;
  request.pid = process.pid;
  request.start_time = process.start_time;
  if (!until.deadline.never()) {
    auto left = std::chrono::duration_cast<Millis>(until.deadline.time() - loop_.clock().MonoNow());
    request.deadline_ms = static_cast<uint32_t>(std::clamp<int64_t>(left.count(), 1, 60'000));
  }
  std::string text;
  for (const std::string& dir : cgroup_dirs) {
    text += dir;
    text += '\0';
  }
  CAISSON_CO_ASSIGN(Answer answer, co_await Ask(request, std::move(text), {}, std::move(until)));
  switch (answer.reply.status) {
    case launcher::Status::kOk:
    case launcher::Status::kGone:
      co_return true;
    case launcher::Status::kPending:
      co_return false;
    case launcher::Status::kFailed:
      break;
  }
  co_return Fail(ErrorCode::kTerminationUnconfirmed, "the launcher could not end the sandbox",
                 answer.text + ": " + ErrnoName(answer.reply.error_number));
}

Task<Result<UniqueFd>> LauncherClient::Find(ProcessRef process, Until until) {
  launcher::Request request;
  request.op = launcher::Op::kFind;
  request.pid = process.pid;
  request.start_time = process.start_time;
  CAISSON_CO_ASSIGN(Answer answer, co_await Ask(request, "", {}, std::move(until)));
  if (answer.reply.status == launcher::Status::kOk && answer.descriptor) {
    co_return std::move(answer.descriptor);
  }
  co_return Fail(ErrorCode::kSandboxLost, "the sandbox's first process is gone");
}

Task<Result<void>> LauncherClient::RemoveTree(std::string path, Until until) {
  launcher::Request request;
  request.op = launcher::Op::kRemoveTree;
  CAISSON_CO_ASSIGN(Answer answer, co_await Ask(request, path, {}, std::move(until)));
  if (answer.reply.status == launcher::Status::kOk) co_return Result<void>();
  co_return Fail(ErrorCode::kIo, "removing files of a sandbox failed",
                 answer.text + ": " + ErrnoName(answer.reply.error_number));
}

Task<Result<void>> LauncherClient::Stop(Until until) {
  // Half-closed, so that the launcher sees the end and this side still sees the launcher's.
  (void)::shutdown(socket_->fd(), SHUT_WR);
  CAISSON_CO_ASSIGN(UniqueFd watched, [&]() -> Result<UniqueFd> {
    UniqueFd copy(::fcntl(process_.pidfd(), F_DUPFD_CLOEXEC, 0));
    if (!copy) return Fail(ErrnoError(errno, "duplicate a pidfd"));
    return copy;
  }());
  CAISSON_CO_ASSIGN(net::Descriptor ended, net::Descriptor::Make(loop_, std::move(watched)));
  auto waited = co_await ended.WaitReadable(std::move(until));
  tasks_.RequestStop();
  co_await tasks_.Join();
  CAISSON_CO_TRY(waited);
  CAISSON_CO_ASSIGN(ExitStatus status,
                    process_.Wait(loop_.clock(), Deadline::After(loop_.clock(), Millis(0))));
  if (!status.ok()) {
    co_return Fail(ErrorCode::kInternal, fmt::format("the launcher ended with code {}, signal {}",
                                                     status.code, status.signal));
  }
  co_return Result<void>();
}

}  // namespace caisson::sandbox::local
