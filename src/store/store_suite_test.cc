// What every driver of the store must do. Runs on SQLite; PostgreSQL joins with its driver.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "net/loop.h"
#include "net/task_group.h"
#include "store/sqlite/sqlite_store.h"
#include "store/store.h"

namespace caisson::store {
namespace {

const WallTime kStart{Micros(1'796'000'000'000'000)};
constexpr Millis kLease{15'000};

class StoreSuite : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/store-" + random_.Hex(8);
    std::filesystem::create_directories(dir_);
    Open();
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(dir_);
  }
  void Open() {
    auto store = sqlite::OpenSqliteStore({dir_ + "/caisson.db", true}, clock_, random_);
    ASSERT_TRUE(store.has_value()) << store.error().ToString();
    store_ = std::move(*store);
  }
  template <typename T>
  Result<T> Do(StoreTask<T> task) {
    return net::RunUntilDone(loop_, std::move(task));
  }
  SessionRow NewOne(const Scope& scope = Scope::Root()) {
    return Do(store_->CreateSession(scope, {"agent", "title", "{}"}, {})).value();
  }
  Result<Submitted> Send(const SessionId& session, Idempotency idempotency = {}) {
    return Do(store_->Submit(Scope::Root(), {session, R"([{"type":"text","text":"hi"}])",
                                             Multitask::kReject, std::move(idempotency)}));
  }
  Claim MustClaim() {
    auto claim = Do(store_->ClaimRun(worker_, kLease)).value();
    EXPECT_TRUE(claim.has_value());
    return std::move(*claim);
  }
  std::vector<events::Event> Log(const SessionId& session, uint64_t after = 0) {
    EventQuery query{session, after, 1000, events::Visibility::kInternal, {}};
    return Do(store_->ReadEvents(Scope::Root(), query)).value().events;
  }
  static events::NewEvent Token(const std::string& text) {
    return {events::EventType::kToken,
            R"({"message_id":"m","attempt":1,"content":")" + text + R"("})"};
  }

  SystemRandom random_;
  ManualClock clock_{kStart};
  SystemClock real_clock_;
  net::Loop loop_{real_clock_};
  std::string dir_;
  std::unique_ptr<Store> store_;
  ReplicaId worker_ = ReplicaId::Make(clock_, random_);
  Scope other_ = Scope::FromTrusted({{"tenant", "other"}}).value();
};

TEST_F(StoreSuite, DefinitionsHaveRevisions) {
  auto put = [&](std::string json, uint64_t revision) {
    return Do(store_->PutDefinition(Scope::Root(), DefinitionKind::kAgent, "a", std::move(json),
                                    revision));
  };
  EXPECT_EQ(put("{}", 0).value().revision, 1u);
  EXPECT_EQ(put("{}", 0).error().code, ErrorCode::kPreconditionFailed);
  auto second = put(R"({"x":1})", 1).value();
  EXPECT_EQ(second.revision, 2u);
  auto read = Do(store_->GetDefinition(Scope::Root(), DefinitionKind::kAgent, "a")).value();
  EXPECT_EQ(read.json, R"({"x":1})");
  EXPECT_EQ(read.digest, second.digest);
  EXPECT_EQ(Do(store_->GetDefinition(Scope::Root(), DefinitionKind::kProvider, "a")).error().code,
            ErrorCode::kNotFound);
  EXPECT_EQ(
      Do(store_->DeleteDefinition(Scope::Root(), DefinitionKind::kAgent, "a", 1)).error().code,
      ErrorCode::kPreconditionFailed);
  EXPECT_TRUE(
      Do(store_->DeleteDefinition(Scope::Root(), DefinitionKind::kAgent, "a", 2)).has_value());
  EXPECT_EQ(Do(store_->GetDefinition(Scope::Root(), DefinitionKind::kAgent, "a")).error().code,
            ErrorCode::kNotFound);
}

// A foreign id and an unknown id are the same answer.
TEST_F(StoreSuite, Case64_ForeignIdsLookUnknown) {
  SessionRow session = NewOne();
  Submitted submitted = Send(session.id).value();
  RunId unknown_run = RunId::Make(clock_, random_);
  SessionId unknown = SessionId::Make(clock_, random_);
  auto same = [](Error foreign, Error missing, const std::string& foreign_id,
                 const std::string& missing_id) {
    EXPECT_EQ(foreign.code, ErrorCode::kNotFound);
    size_t at = foreign.message.find(foreign_id);
    ASSERT_NE(at, std::string::npos);
    foreign.message.replace(at, foreign_id.size(), missing_id);
    EXPECT_EQ(foreign.message, missing.message);
    EXPECT_EQ(foreign.code, missing.code);
  };
  same(Do(store_->GetSession(other_, session.id)).error(),
       Do(store_->GetSession(other_, unknown)).error(), session.id.text(), unknown.text());
  same(Do(store_->GetRun(other_, submitted.run.id)).error(),
       Do(store_->GetRun(other_, unknown_run)).error(), submitted.run.id.text(),
       unknown_run.text());
  same(Do(store_->RequestCancel(other_, submitted.run.id, "")).error(),
       Do(store_->RequestCancel(other_, unknown_run, "")).error(), submitted.run.id.text(),
       unknown_run.text());
  same(Do(store_->ReadEvents(other_, {session.id, 0, 10, events::Visibility::kInternal, {}}))
           .error(),
       Do(store_->ReadEvents(other_, {unknown, 0, 10, events::Visibility::kInternal, {}})).error(),
       session.id.text(), unknown.text());
  same(Do(store_->Submit(other_, {session.id, "[]", Multitask::kReject, {}})).error(),
       Do(store_->Submit(other_, {unknown, "[]", Multitask::kReject, {}})).error(),
       session.id.text(), unknown.text());
  EXPECT_TRUE(Do(store_->ListSessions(other_, {})).value().rows.empty());
  EXPECT_EQ(Do(store_->GetRun(Scope::Root(), submitted.run.id)).value().status, RunStatus::kQueued);
}

TEST_F(StoreSuite, PagesCoverEverythingOnce) {
  std::set<std::string> made;
  for (int i = 0; i < 25; i++) made.insert(NewOne().id.text());
  std::set<std::string> seen;
  PageRequest request{10, ""};
  for (int pages = 1;; pages++) {
    auto page = Do(store_->ListSessions(Scope::Root(), request)).value();
    for (const auto& row : page.rows) EXPECT_TRUE(seen.insert(row.id.text()).second);
    if (page.next_cursor.empty()) {
      EXPECT_EQ(pages, 3);
      break;
    }
    request.cursor = page.next_cursor;
  }
  EXPECT_EQ(seen, made);
  EXPECT_EQ(Do(store_->ListSessions(Scope::Root(), {0, ""})).error().code,
            ErrorCode::kInvalidArgument);
}

TEST_F(StoreSuite, SubmitIsOneChange) {
  SessionRow session = NewOne();
  Submitted submitted = Send(session.id).value();
  EXPECT_EQ(submitted.run.status, RunStatus::kQueued);
  EXPECT_EQ(submitted.task.status, TaskStatus::kSubmitted);
  auto log = Log(session.id);
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0].type, events::EventType::kUserMessage);
  EXPECT_EQ(log[0].seq, submitted.run.first_seq);
  auto busy = Send(session.id);
  EXPECT_EQ(busy.error().code, ErrorCode::kSessionBusy);
  EXPECT_NE(busy.error().message.find(submitted.run.id.text()), std::string::npos);
  EXPECT_EQ(Log(session.id).size(), 1u) << "the refused submit left something behind";
}

TEST_F(StoreSuite, IdempotencyGivesTheFirstResult) {
  SessionRow session = NewOne();
  Submitted first = Send(session.id, {"key", "digest"}).value();
  Submitted again = Send(session.id, {"key", "digest"}).value();
  EXPECT_TRUE(again.replayed);
  EXPECT_EQ(again.run.id, first.run.id);
  EXPECT_EQ(again.message, first.message);
  EXPECT_EQ(Send(session.id, {"key", "another"}).error().code, ErrorCode::kIdempotencyMismatch);
  EXPECT_EQ(Log(session.id).size(), 1u);
  auto one = Do(store_->CreateSession(Scope::Root(), {"a", "", "{}"}, {"k", "d"})).value();
  EXPECT_EQ(Do(store_->CreateSession(Scope::Root(), {"a", "", "{}"}, {"k", "d"})).value().id,
            one.id);
  EXPECT_NE(Do(store_->CreateSession(other_, {"a", "", "{}"}, {"k", "d"})).value().id, one.id);
  clock_.Advance(std::chrono::hours(25));
  EXPECT_NE(Do(store_->CreateSession(Scope::Root(), {"a", "", "{}"}, {"k", "d"})).value().id,
            one.id);
}

TEST_F(StoreSuite, ARunGoesToItsEnd) {
  SessionRow session = NewOne();
  Submitted submitted = Send(session.id).value();
  Claim claim = MustClaim();
  EXPECT_EQ(claim.run.id, submitted.run.id);
  EXPECT_FALSE(claim.resumed);
  EXPECT_FALSE(Do(store_->ClaimRun(worker_, kLease)).value().has_value()) << "claimed twice";
  EXPECT_TRUE(Do(store_->PinManifest(claim.fence, "{}", "d1")).has_value());
  EXPECT_TRUE(Do(store_->PinManifest(claim.fence, "{}", "d1")).has_value());
  EXPECT_EQ(Do(store_->PinManifest(claim.fence, "{}", "d2")).error().code, ErrorCode::kConflict);
  uint64_t first = Do(store_->AppendEvents(claim.fence, {Token("a"), Token("b")})).value();
  RunRow done =
      Do(store_->ChangeRun(claim.fence, {RunStatus::kDone, "", "", {Token("c")}})).value();
  EXPECT_EQ(done.status, RunStatus::kDone);
  EXPECT_TRUE(done.ended_at.has_value());
  auto log = Log(session.id);
  for (size_t i = 0; i < log.size(); i++) EXPECT_EQ(log[i].seq, i + 1);
  EXPECT_EQ(log[first].payload, Token("b").payload);
  EXPECT_EQ(log.back().type, events::EventType::kRunState);
  SessionRow after = Do(store_->GetSession(Scope::Root(), session.id)).value();
  EXPECT_EQ(after.status, SessionStatus::kIdle);
  EXPECT_TRUE(after.active_run.empty());
  EXPECT_EQ(Do(store_->AppendEvents(claim.fence, {Token("late")})).error().code,
            ErrorCode::kFenced);
  EXPECT_TRUE(Send(session.id).has_value()) << "the session is not usable after its run";
}

TEST_F(StoreSuite, AnExpiredLeaseIsTakenOverAndFencesTheOldOwner) {
  SessionRow session = NewOne();
  Send(session.id).value();
  Claim old_claim = MustClaim();
  clock_.Advance(kLease / 2);
  EXPECT_TRUE(Do(store_->RenewLease(old_claim.fence, kLease)).has_value());
  clock_.Advance(kLease);
  EXPECT_FALSE(Do(store_->ClaimRun(worker_, kLease)).value().has_value())
      << "the lease was renewed";
  clock_.Advance(Millis(1));
  Claim new_claim = MustClaim();
  EXPECT_TRUE(new_claim.resumed);
  EXPECT_GT(new_claim.fence.value(), old_claim.fence.value());
  EXPECT_EQ(Do(store_->AppendEvents(old_claim.fence, {Token("x")})).error().code,
            ErrorCode::kFenced);
  EXPECT_EQ(Do(store_->RenewLease(old_claim.fence, kLease)).error().code, ErrorCode::kFenced);
  EXPECT_EQ(Do(store_->ChangeRun(old_claim.fence, {RunStatus::kDone, "", "", {}})).error().code,
            ErrorCode::kFenced);
  EXPECT_TRUE(Do(store_->AppendEvents(new_claim.fence, {Token("y")})).has_value());
}

TEST_F(StoreSuite, CancelWithAndWithoutAWorker) {
  SessionRow session = NewOne();
  Submitted queued = Send(session.id).value();
  EXPECT_EQ(Do(store_->RequestCancel(Scope::Root(), queued.run.id, "user")).value(),
            CancelOutcome::kCancelled);
  EXPECT_EQ(Do(store_->RequestCancel(Scope::Root(), queued.run.id, "user")).value(),
            CancelOutcome::kEnded);
  Submitted active = Send(session.id).value();
  Claim claim = MustClaim();
  EXPECT_EQ(Do(store_->RequestCancel(Scope::Root(), active.run.id, "user")).value(),
            CancelOutcome::kRequested);
  EXPECT_EQ(Do(store_->RequestCancel(Scope::Root(), active.run.id, "user")).value(),
            CancelOutcome::kRequested);
  // Exactly one winner: completing is not legal any more.
  EXPECT_EQ(Do(store_->ChangeRun(claim.fence, {RunStatus::kDone, "", "", {}})).error().code,
            ErrorCode::kIllegalTransition);
  EXPECT_EQ(Do(store_->ChangeRun(claim.fence, {RunStatus::kCancelled, "", "", {}})).value().status,
            RunStatus::kCancelled);
}

TEST_F(StoreSuite, ABadEventLeavesNoGap) {
  SessionRow session = NewOne();
  Send(session.id).value();
  Claim claim = MustClaim();
  uint64_t before = Log(session.id).size();
  EXPECT_FALSE(
      Do(store_->AppendEvents(claim.fence, {Token("a"), {events::EventType::kToken, "{}"}}))
          .has_value());
  EXPECT_EQ(Log(session.id).size(), before);
  EXPECT_EQ(Do(store_->AppendEvents(claim.fence, {Token("b")})).value(), before + 1);
}

TEST_F(StoreSuite, ManyWritersNumberWithoutGaps) {
  SessionRow session = NewOne();
  Send(session.id).value();
  Claim claim = MustClaim();
  uint64_t before = Log(session.id).size();
  auto work = [&]() -> Task<Result<void>> {
    net::TaskGroup group;
    for (int i = 0; i < 500; i++) {
      group.Start([](Store& store, Fence fence, events::NewEvent event) -> Task<void> {
        EXPECT_TRUE(
            (co_await store.AppendEvents(std::move(fence), {std::move(event)})).has_value());
      }(*store_, claim.fence, Token(std::to_string(i))));
    }
    co_await group.Join();
    co_return Result<void>();
  };
  ASSERT_TRUE(net::RunUntilDone(loop_, work()).has_value());
  auto log = Log(session.id);
  ASSERT_EQ(log.size(), before + 500);
  for (size_t i = 0; i < log.size(); i++) EXPECT_EQ(log[i].seq, i + 1);
}

TEST_F(StoreSuite, ReadersSeeTheirVisibilityAndRange) {
  SessionRow session = NewOne();
  Send(session.id).value();
  Claim claim = MustClaim();
  ASSERT_TRUE(Do(store_->PinManifest(claim.fence, "{}", "d")).has_value());
  auto read = [&](uint64_t after, uint32_t limit, events::Visibility visibility) {
    return Do(store_->ReadEvents(Scope::Root(), {session.id, after, limit, visibility, {}}));
  };
  auto end_user = events::Visibility::kEndUser;
  auto builder = events::Visibility::kBuilder;
  size_t all = read(0, 100, builder).value().events.size();
  EXPECT_EQ(read(0, 100, end_user).value().events.size(), all - 1);
  EXPECT_EQ(read(all, 100, builder).value().events.size(), 0u);
  EXPECT_EQ(read(1, 1, builder).value().events.at(0).seq, 2u);
  EXPECT_EQ(read(all + 1, 100, builder).error().code, ErrorCode::kInvalidArgument);

  // The last event is the manifest's, which end users do not see: pages go past it all the same.
  auto limit = static_cast<uint32_t>(all);
  EventPage page = read(0, limit - 1, builder).value();
  EXPECT_FALSE(page.at_end);
  EXPECT_EQ(page.through, all - 1);
  page = read(0, limit - 1, end_user).value();
  EXPECT_TRUE(page.at_end);
  EXPECT_EQ(page.events.size(), all - 1);
  EXPECT_EQ(page.through, all);
  page = read(page.through, 1, end_user).value();
  EXPECT_TRUE(page.at_end && page.events.empty());
  EXPECT_EQ(page.through, all);
  page = read(0, limit, builder).value();
  EXPECT_TRUE(page.at_end);
  // A follower is told how far it has come, too.
  EventQuery query{session.id, all - 1, 100, end_user, {}};
  Until now(Deadline::After(real_clock_, Millis(0)));
  page = Do(store_->FollowEvents(Scope::Root(), query, now)).value();
  EXPECT_TRUE(page.at_end && page.events.empty());
  EXPECT_EQ(page.through, all);
}

TEST_F(StoreSuite, WaitingWakesWithTheCommit) {
  SessionRow session = NewOne();
  auto work = [&]() -> Task<Result<EventPage>> {
    net::TaskGroup group;
    Result<EventPage> seen;
    group.Start([](Store& store, EventQuery query, Result<EventPage>& into,
                   Until until) -> Task<void> {
      into = co_await store.FollowEvents(Scope::Root(), std::move(query), until);
    }(*store_, {session.id, 0, 10, events::Visibility::kEndUser, {}}, seen,
                                Until(Deadline::After(real_clock_, Millis(30'000)))));
    SubmitRequest request{session.id, "[]", Multitask::kReject, {}};
    CAISSON_CO_TRY(co_await store_->Submit(Scope::Root(), std::move(request)));
    co_await group.Join();
    co_return seen;
  };
  EventPage page = net::RunUntilDone(loop_, work()).value();
  ASSERT_FALSE(page.events.empty());
  EXPECT_EQ(page.events[0].seq, 1u);
}

TEST_F(StoreSuite, EverythingSurvivesAReopen) {
  SessionRow session = NewOne(other_);
  store_.reset();
  Open();
  EXPECT_EQ(Do(store_->GetSession(other_, session.id)).value().id, session.id);
}

TEST_F(StoreSuite, ASecondServerIsRefused) {
  auto second = sqlite::OpenSqliteStore({dir_ + "/caisson.db", true}, clock_, random_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kDataDirLocked);
}

TEST_F(StoreSuite, SandboxesLiveByTheirTable) {
  SessionRow session = NewOne();
  NewSandbox request{
      SandboxId::Make(clock_, random_), session.id, "main", "local", "default", "{}", true, kStart};
  SandboxRow row = Do(store_->RequestSandbox(Scope::Root(), request, {})).value();
  EXPECT_EQ(row.status, SandboxStatus::kRequested);
  EXPECT_GT(row.uid_base, 0u);
  NewSandbox second = request;
  second.id = SandboxId::Make(clock_, random_);
  EXPECT_EQ(Do(store_->RequestSandbox(Scope::Root(), second, {})).error().code,
            ErrorCode::kAlreadyExists);
  auto change = [&](SandboxStatus to, uint64_t generation) {
    return Do(store_->ChangeSandbox(Scope::Root(), row.id, generation, {to, "", "{}", {}}));
  };
  EXPECT_EQ(change(SandboxStatus::kReady, 1).error().code, ErrorCode::kIllegalTransition);
  EXPECT_EQ(change(SandboxStatus::kProvisioning, 2).error().code, ErrorCode::kPreconditionFailed);
  EXPECT_EQ(change(SandboxStatus::kProvisioning, 1).value().generation, 2u);
  EXPECT_EQ(Do(store_->LiveSandboxes()).value().size(), 1u);
  EXPECT_EQ(change(SandboxStatus::kFailed, 2).value().status, SandboxStatus::kFailed);
  EXPECT_TRUE(Do(store_->LiveSandboxes()).value().empty());
  auto last = [&](std::string kind) {
    return Do(store_->LastSandbox(Scope::Root(), session.id, std::move(kind))).value();
  };
  EXPECT_EQ(last("main").value().status, SandboxStatus::kFailed);
  EXPECT_FALSE(last("other").has_value());
  EXPECT_EQ(Do(store_->RequestSandbox(Scope::Root(), second, {})).value().uid_base, row.uid_base)
      << "uids of a sandbox that is gone are free again";
}

TEST_F(StoreSuite, ARequestMayGoOnInItsTransaction) {
  SessionRow session = NewOne();
  NewSandbox request{
      SandboxId::Make(clock_, random_), session.id, "main", "local", "default", "{}", true, kStart};
  request.then = {SandboxStatus::kReady, "", std::nullopt, {}};
  EXPECT_EQ(Do(store_->RequestSandbox(Scope::Root(), request, {})).error().code,
            ErrorCode::kIllegalTransition);
  EXPECT_TRUE(Do(store_->LiveSandboxes()).value().empty()) << "all or nothing";
  request.then->to = SandboxStatus::kProvisioning;
  SandboxRow row = Do(store_->RequestSandbox(Scope::Root(), request, {})).value();
  EXPECT_EQ(row.status, SandboxStatus::kProvisioning);
  EXPECT_EQ(row.generation, 2u);
}

TEST_F(StoreSuite, WhatNeedNotBeDurableIsKeptAllTheSame) {
  NewSandbox request{
      SandboxId::Make(clock_, random_), {}, "main", "local", "default", "{}", true, kStart};
  request.then = {SandboxStatus::kProvisioning, "", std::nullopt, {}};
  SandboxRow row = Do(store_->RequestSandbox(Scope::Root(), request, {})).value();
  SandboxChange ready{SandboxStatus::kReady, "", "{}", {}, false};
  EXPECT_TRUE(Do(store_->ChangeSandbox(Scope::Root(), row.id, 2, ready)).has_value());
  store_.reset();
  Open();
  EXPECT_EQ(Do(store_->GetSandbox(Scope::Root(), row.id)).value().status, SandboxStatus::kReady);
}

TEST_F(StoreSuite, UidBlocksDoNotOverlap) {
  std::set<uint32_t> bases;
  for (int i = 0; i < 50; i++) {
    NewSandbox request{
        SandboxId::Make(clock_, random_), {}, "main", "local", "default", "{}", true, kStart};
    auto base = Do(store_->RequestSandbox(Scope::Root(), request, {})).value().uid_base;
    EXPECT_EQ(base % 65'536, 0u);
    EXPECT_TRUE(bases.insert(base).second);
  }
}

}  // namespace
}  // namespace caisson::store
