#include "store/sqlite/sqlite_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/syscall.h"
#include "store/sqlite/schema.h"
#include "store/sqlite/tails.h"
#include "store/sqlite/transactions.h"
#include "store/sqlite/worker.h"

namespace caisson::store::sqlite {
namespace {

// Arguments are taken by value and moved into the job: nothing of the caller's is referred to while
// it waits.
class SqliteStore final : public Store {
 public:
  // `log` is the write-ahead log's file; none: nothing is flushed.
  SqliteStore(UniqueFd lock, UniqueFd log, std::unique_ptr<Database> writer,
              std::unique_ptr<Database> reader, const Clock& clock, Random& random)
      : lock_(std::move(lock)),
        log_(std::move(log)),
        clock_(clock),
        random_(random),
        reader_(Worker::Kind::kReader, std::move(reader), false, [] {}),
        writer_(Worker::Kind::kWriter, std::move(writer), static_cast<bool>(log_),
                [this] { WakeReaders(); }) {}

  StoreTask<DefinitionRow> PutDefinition(Scope scope, DefinitionKind kind, std::string name,
                                         std::string json, uint64_t expected_revision) override {
    return Write<DefinitionRow>(
        [=, s = std::move(scope), n = std::move(name), j = std::move(json)](WriteContext& context) {
          return sqlite::PutDefinition(context, s, kind, n, j, expected_revision);
        });
  }
  StoreTask<DefinitionRow> GetDefinition(Scope scope, DefinitionKind kind,
                                         std::string name) override {
    return Read<DefinitionRow>([=, s = std::move(scope), n = std::move(name)](Database& db) {
      return sqlite::GetDefinition(db, s, kind, n);
    });
  }
  StoreTask<Page<DefinitionRow>> ListDefinitions(Scope scope, DefinitionKind kind,
                                                 PageRequest page) override {
    return Read<Page<DefinitionRow>>([=, s = std::move(scope), p = std::move(page)](Database& db) {
      return sqlite::ListDefinitions(db, s, kind, p);
    });
  }
  StoreTask<void> DeleteDefinition(Scope scope, DefinitionKind kind, std::string name,
                                   uint64_t expected_revision) override {
    return Write<void>([=, s = std::move(scope), n = std::move(name)](WriteContext& context) {
      return sqlite::DeleteDefinition(context, s, kind, n, expected_revision);
    });
  }

  StoreTask<SessionRow> CreateSession(Scope scope, NewSession session,
                                      Idempotency idempotency) override {
    return Write<SessionRow>([s = std::move(scope), n = std::move(session),
                              i = std::move(idempotency)](WriteContext& context) {
      return sqlite::CreateSession(context, s, n, i);
    });
  }
  StoreTask<SessionRow> GetSession(Scope scope, SessionId id) override {
    return Read<SessionRow>([s = std::move(scope), i = std::move(id)](Database& db) {
      return sqlite::GetSession(db, s, i);
    });
  }
  StoreTask<Page<SessionRow>> ListSessions(Scope scope, PageRequest page) override {
    return Read<Page<SessionRow>>([s = std::move(scope), p = std::move(page)](Database& db) {
      return sqlite::ListSessions(db, s, p);
    });
  }

  StoreTask<Submitted> Submit(Scope scope, SubmitRequest request) override {
    return Write<Submitted>([s = std::move(scope), r = std::move(request)](WriteContext& context) {
      return sqlite::Submit(context, s, r);
    });
  }
  StoreTask<RunRow> GetRun(Scope scope, RunId id) override {
    return Read<RunRow>([s = std::move(scope), i = std::move(id)](Database& db) {
      return sqlite::GetRun(db, s, i);
    });
  }
  StoreTask<Page<RunRow>> ListRuns(Scope scope, SessionId session, PageRequest page) override {
    return Read<Page<RunRow>>([s = std::move(scope), i = std::move(session), p = std::move(page)](
                                  Database& db) { return sqlite::ListRuns(db, s, i, p); });
  }
  StoreTask<CancelOutcome> RequestCancel(Scope scope, RunId id, std::string reason) override {
    return Write<CancelOutcome>(
        [s = std::move(scope), i = std::move(id), r = std::move(reason)](WriteContext& context) {
          return sqlite::RequestCancel(context, s, i, r);
        });
  }

  StoreTask<std::optional<Claim>> ClaimRun(ReplicaId worker, Millis lease) override {
    return Write<std::optional<Claim>>([=, w = std::move(worker)](WriteContext& context) {
      return sqlite::ClaimRun(context, w, lease);
    });
  }
  StoreTask<WallTime> RenewLease(Fence fence, Millis lease) override {
    return Write<WallTime>([=, f = std::move(fence)](WriteContext& context) {
      return sqlite::RenewLease(context, f, lease);
    });
  }
  StoreTask<void> PinManifest(Fence fence, std::string manifest, std::string digest) override {
    return Write<void>([f = std::move(fence), m = std::move(manifest), d = std::move(digest)](
                           WriteContext& context) { return sqlite::PinManifest(context, f, m, d); },
                       false);  // the run's next event makes it durable
  }
  StoreTask<uint64_t> AppendEvents(Fence fence, std::vector<events::NewEvent> events) override {
    return Write<uint64_t>([f = std::move(fence), e = std::move(events)](WriteContext& context) {
      return sqlite::AppendEvents(context, f, e);
    });
  }
  StoreTask<RunRow> ChangeRun(Fence fence, RunChange change) override {
    return Write<RunRow>([f = std::move(fence), c = std::move(change)](WriteContext& context) {
      return sqlite::ChangeRun(context, f, c);
    });
  }

  StoreTask<EventPage> ReadEvents(Scope scope, EventQuery query) override {
    return Read<EventPage>([s = std::move(scope), q = std::move(query)](Database& db) {
      return sqlite::ReadEvents(db, s, q);
    });
  }
  StoreTask<EventPage> FollowEvents(Scope scope, EventQuery query, Until until) override {
    // A deadline is a time of the loop's clock, which need not be the store's.
    const Clock* clock = &net::Loop::Current()->clock();
    for (;;) {
      auto waiter = tails_.Register(query.session.text(), *net::Loop::Current());
      CAISSON_CO_ASSIGN(EventPage page, co_await ReadEvents(scope, query));
      if (!page.events.empty() || until.deadline.Passed(*clock)) co_return page;
      query.after = page.through;
      auto waited = co_await waiter->Wait(until);
      if (!waited && waited.error().code != ErrorCode::kDeadlineExceeded) {
        co_return Fail(waited.error());
      }
    }
  }

  StoreTask<SandboxRow> RequestSandbox(Scope scope, NewSandbox sandbox,
                                       Idempotency idempotency) override {
    bool durable = !sandbox.then || MustLast(*sandbox.then);
    return Write<SandboxRow>(
        [s = std::move(scope), n = std::move(sandbox), i = std::move(idempotency)](
            WriteContext& context) { return sqlite::RequestSandbox(context, s, n, i); },
        durable);
  }
  StoreTask<SandboxRow> GetSandbox(Scope scope, SandboxId id) override {
    return Read<SandboxRow>([s = std::move(scope), i = std::move(id)](Database& db) {
      return sqlite::GetSandbox(db, s, i);
    });
  }
  StoreTask<std::optional<SandboxRow>> LastSandbox(Scope scope, SessionId session,
                                                   std::string kind) override {
    return Read<std::optional<SandboxRow>>(
        [s = std::move(scope), i = std::move(session), k = std::move(kind)](Database& db) {
          return sqlite::LastSandbox(db, s, i, k);
        });
  }
  StoreTask<Page<SandboxRow>> ListSandboxes(Scope scope, PageRequest page) override {
    return Read<Page<SandboxRow>>([s = std::move(scope), p = std::move(page)](Database& db) {
      return sqlite::ListSandboxes(db, s, p);
    });
  }
  StoreTask<SandboxRow> ChangeSandbox(Scope scope, SandboxId id, uint64_t generation,
                                      SandboxChange change) override {
    bool durable = MustLast(change);
    return Write<SandboxRow>(
        [=, s = std::move(scope), i = std::move(id), c = std::move(change)](WriteContext& context) {
          return sqlite::ChangeSandbox(context, s, i, generation, c);
        },
        durable);
  }
  StoreTask<std::vector<Owned>> LiveSandboxes() override {
    return Read<std::vector<Owned>>([](Database& db) { return sqlite::LiveSandboxes(db); });
  }

  StoreTask<void> Check() override {
    return Read<void>([](Database& db) -> Result<void> {
      return db.Prepare("SELECT 1 FROM sessions LIMIT 1").Run();
    });
  }

  StoreTask<void> Flush() override {
    return Write<void>(
        [this](WriteContext&) -> Result<void> {
          if (log_ && ::fdatasync(log_.get()) != 0) return Fail(ErrnoError(errno, "flush the log"));
          return {};
        },
        false);
  }

 private:
  static bool MustLast(const SandboxChange& change) {
    return change.durable || !change.events.empty();
  }
  template <typename T, typename Work>
  StoreTask<T> Write(Work work, bool durable = true) {
    return writer_.Run<T>(
        [this, moved = std::move(work)](Database& db) mutable -> Result<T> {
          WriteContext context{db, clock_.Now(), clock_, random_, touched_};
          return moved(context);
        },
        durable);
  }
  template <typename T, typename Work>
  StoreTask<T> Read(Work work) {
    return reader_.Run<T>(std::move(work));
  }
  void WakeReaders() {
    tails_.Wake(touched_);
    touched_.clear();
  }

  UniqueFd lock_;
  UniqueFd log_;
  const Clock& clock_;
  Random& random_;
  Tails tails_;
  std::vector<std::string> touched_;  // the writer's thread only
  Worker reader_;
  Worker writer_;  // last: its thread ends before what it uses goes
};

Result<UniqueFd> TakeLock(const std::string& path) {
  CAISSON_ASSIGN(UniqueFd fd, OpenFile(path, O_RDWR | O_CREAT, 0600));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK) {
    return Fail(ErrorCode::kDataDirLocked,
                fmt::format("another caisson uses this store ({} is locked); stop it, or choose "
                            "another --data-dir",
                            path));
  }
  return Fail(ErrnoError(errno, "lock " + path));
}

}  // namespace

Result<std::unique_ptr<Store>> OpenSqliteStore(const Options& options, const Clock& clock,
                                               Random& random) {
  auto lock = TakeLock(options.path + ".lock");
  if (!lock) {
    Error error = lock.error();
    if (error.code != ErrorCode::kDataDirLocked) error.code = ErrorCode::kDataDirUnusable;
    return Fail(std::move(error));
  }
  CAISSON_ASSIGN(auto writer, Database::Open(options.path, Database::Mode::kReadWrite));
  CAISSON_TRY(writer->Execute("PRAGMA journal_mode = WAL"));
  CAISSON_TRY(writer->Execute(options.durable ? "PRAGMA synchronous = FULL"
                                              : "PRAGMA synchronous = NORMAL"));
  CAISSON_TRY(Migrate(*writer));
  // The lock proves that no other server lives: leases of an earlier one are worth nothing, and its
  // runs may be claimed at once.
  CAISSON_TRY(writer->Execute("UPDATE runs SET lease_until = 0 WHERE owner <> ''"));
  CAISSON_ASSIGN(auto reader, Database::Open(options.path, Database::Mode::kReadOnly));
  UniqueFd log;
  if (options.durable) {
    CAISSON_ASSIGN(log, OpenFile(options.path + "-wal", O_RDONLY));
  }
  return std::make_unique<SqliteStore>(std::move(*lock), std::move(log), std::move(writer),
                                       std::move(reader), clock, random);
}

}  // namespace caisson::store::sqlite
