#include "base/scope.h"

#include <gtest/gtest.h>

namespace caisson {
namespace {

TEST(Scope, KeyIsCanonical) {
  Scope scope = Scope::FromTrusted({{"user", "a\"b\\c"}, {"tenant", "acme"}}).value();
  EXPECT_EQ(scope.key(), R"({"tenant":"acme","user":"a\"b\\c"})");
  EXPECT_EQ(Scope::Root().key(), Scope::FromTrusted({}).value().key());
  EXPECT_NE(scope, Scope::Root());
}

TEST(Scope, FingerprintHidesValues) {
  Scope scope = Scope::FromTrusted({{"tenant", "acme"}}).value();
  EXPECT_EQ(scope.Fingerprint().size(), 16u);
  EXPECT_EQ(scope.Fingerprint().find("acme"), std::string::npos);
  EXPECT_NE(scope.Fingerprint(), Scope::Root().Fingerprint());
}

TEST(Scope, RefusesOddKeysAndValues) {
  EXPECT_FALSE(Scope::FromTrusted({{"Tenant", "x"}}).has_value());
  EXPECT_FALSE(Scope::FromTrusted({{"", "x"}}).has_value());
  EXPECT_FALSE(Scope::FromTrusted({{"tenant", ""}}).has_value());
  EXPECT_FALSE(Scope::FromTrusted({{"tenant", "a b"}}).has_value());
  EXPECT_FALSE(Scope::FromTrusted({{"tenant", "a\nb"}}).has_value());
  EXPECT_FALSE(Scope::FromTrusted({{"tenant", std::string(257, 'a')}}).has_value());
}

}  // namespace
}  // namespace caisson
