#include "http/connector.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "http/client.h"
#include "net/task_group.h"

namespace caisson::http {
namespace {

TEST(ParseUrl, SplitsAndRefuses) {
  Url url = ParseUrl("https://api.example.com/v1").value();
  EXPECT_TRUE(url.https);
  EXPECT_EQ(url.host, "api.example.com");
  EXPECT_EQ(url.port, 443);
  EXPECT_EQ(url.path, "/v1");
  EXPECT_EQ(url.Authority(), "api.example.com");
  EXPECT_EQ(ParseUrl("http://[::1]:8080").value().Authority(), "[::1]:8080");
  EXPECT_EQ(ParseUrl("http://127.0.0.1:11434/v1/").value().port, 11434);
  for (const char* bad :
       {"", "ftp://x", "http://", "http:///x", "http://u@h", "http://h:0", "http://h:99999",
        "http://h:1x", "http://[::1", "http://h?x", "http://a b/"}) {
    EXPECT_FALSE(ParseUrl(bad).has_value()) << bad;
  }
}

TEST(NoProxy, MatchesWholeLabels) {
  EXPECT_TRUE(BypassesProxy("localhost, example.com", "example.com"));
  EXPECT_TRUE(BypassesProxy("example.com", "a.example.com"));
  EXPECT_TRUE(BypassesProxy(".example.com", "a.example.com"));
  EXPECT_FALSE(BypassesProxy("example.com", "badexample.com"));
  EXPECT_TRUE(BypassesProxy("*", "anything"));
  EXPECT_FALSE(BypassesProxy("", "x"));
  EXPECT_FALSE(BypassesProxy(",,", "x"));
}

// A TLS server on a thread, with a certificate of its own for localhost.
class TlsPeer {
 public:
  explicit TlsPeer(const std::string& ca_file) {
    key_.reset(EVP_EC_gen("P-256"));
    X509* certificate = X509_new();
    certificate_.reset(certificate);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_version(certificate, 2);
    X509_set_pubkey(certificate, key_.get());
    X509_NAME* name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    X509_EXTENSION* names =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    X509_add_ext(certificate, names, -1);
    X509_EXTENSION_free(names);
    X509_sign(certificate, key_.get(), EVP_sha256());
    FILE* file = std::fopen(ca_file.c_str(), "w");
    PEM_write_X509(file, certificate);
    std::fclose(file);
    context_.reset(SSL_CTX_new(TLS_server_method()));
    SSL_CTX_use_certificate(context_.get(), certificate);
    SSL_CTX_use_PrivateKey(context_.get(), key_.get());
  }
  // Serves one connection: answers one request with "secure".
  void Serve(UniqueFd socket) {
    std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context_.get()), &SSL_free);
    SSL_set_fd(ssl.get(), socket.get());
    if (SSL_accept(ssl.get()) != 1) return;
    std::string received;
    char buffer[4096];
    while (received.find("\r\n\r\n") == std::string::npos) {
      int got = SSL_read(ssl.get(), buffer, sizeof buffer);
      if (got <= 0) return;
      received.append(buffer, static_cast<size_t>(got));
    }
    std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecure";
    SSL_write(ssl.get(), answer.data(), static_cast<int>(answer.size()));
    SSL_shutdown(ssl.get());
  }

 private:
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key_{nullptr, &EVP_PKEY_free};
  std::unique_ptr<X509, decltype(&X509_free)> certificate_{nullptr, &X509_free};
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{nullptr, &SSL_CTX_free};
};

class TlsTest : public ::testing::Test {
 public:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);  // OpenSSL's own writes have no MSG_NOSIGNAL
    ca_file_ = ::testing::TempDir() + "/ca-" + std::to_string(::getpid()) + ".pem";
    peer_.emplace(ca_file_);
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    own_ = UniqueFd(ends[0]);
    server_ = std::thread([this, fd = ends[1]] { peer_->Serve(UniqueFd(fd)); });
  }
  void TearDown() override {
    own_.reset();
    server_.join();
    std::filesystem::remove(ca_file_);
  }
  // Shakes hands as a client that trusts `ca_file` and wants `host`, then asks.
  Result<std::string> Ask(const std::string& ca_file, std::string host) {
    auto work = [&]() -> Task<Result<std::string>> {
      Until until(Deadline::After(clock_, Millis(30'000)));
      CAISSON_CO_ASSIGN(auto context, net::TlsContext::Make(ca_file));
      CAISSON_CO_ASSIGN(auto plain, net::MakeStream(loop_, std::move(own_)));
      CAISSON_CO_ASSIGN(auto stream,
                        co_await net::StartTls(context, std::move(plain), host, until));
      ClientConnection client(std::move(stream));
      CAISSON_CO_TRY(co_await client.Send({"GET", "/", {{"Host", host}}}, "", until));
      co_return co_await client.ReadWholeBody(100, until);
    };
    return net::RunUntilDone(loop_, work());
  }
  SystemClock clock_;
  net::Loop loop_{clock_};
  std::string ca_file_;
  std::optional<TlsPeer> peer_;
  UniqueFd own_;
  std::thread server_;
};

TEST_F(TlsTest, TalksToATrustedPeer) {
  auto body = Ask(ca_file_, "localhost");
  ASSERT_TRUE(body.has_value()) << body.error().ToString();
  EXPECT_EQ(*body, "secure");
}
TEST_F(TlsTest, AcceptsAnAddressThatTheCertificateNames) {
  EXPECT_TRUE(Ask(ca_file_, "127.0.0.1").has_value());
}
TEST_F(TlsTest, RefusesAnUnknownAuthority) {
  auto body = Ask("", "localhost");
  ASSERT_FALSE(body.has_value());
  EXPECT_NE(body.error().message.find("self-signed"), std::string::npos) << body.error().message;
}
TEST_F(TlsTest, RefusesAnotherName) {
  auto body = Ask(ca_file_, "example.com");
  ASSERT_FALSE(body.has_value());
  EXPECT_NE(body.error().message.find("hostname mismatch"), std::string::npos)
      << body.error().message;
}
TEST_F(TlsTest, NamesAMissingAuthorityFile) {
  EXPECT_EQ(net::TlsContext::Make("/nonexistent.pem").error().code, ErrorCode::kInvalidConfig);
}

class ConnectorTest : public ::testing::Test {
 public:
  SystemClock clock_;
  net::Loop loop_{clock_};
  net::Resolver resolver_;
  Until Soon() { return Until(Deadline::After(clock_, Millis(30'000))); }
};

TEST_F(ConnectorTest, ConnectsByName) {
  auto listener = net::ListenTcp(loop_, "127.0.0.1", 0).value();
  Connector connector(loop_, resolver_, {});
  Url url = ParseUrl("http://localhost:" + std::to_string(listener.Port().value())).value();
  EXPECT_TRUE(net::RunUntilDone(loop_, connector.Connect(url, Soon())).has_value());
  url.host = "name.invalid";
  auto missing = net::RunUntilDone(loop_, connector.Connect(url, Soon()));
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().message.find("name.invalid"), std::string::npos);
}

TEST_F(ConnectorTest, AsksTheProxyForHttpsOnly) {
  auto listener = net::ListenTcp(loop_, "127.0.0.1", 0).value();
  std::string proxy = "http://127.0.0.1:" + std::to_string(listener.Port().value());
  Connector connector(loop_, resolver_, {proxy, "direct.invalid", ""});
  std::string received;
  auto work = [&]() -> Task<Result<net::StreamPtr>> {
    net::TaskGroup group;
    group.Start([](net::Listener& from, std::string& into, Until until) -> Task<void> {
      auto stream = co_await from.Accept(until);
      std::string buffer(4096, '\0');
      auto got = co_await (*stream)->Read(buffer, until);
      into = buffer.substr(0, *got);
      (void)co_await (*stream)->Write("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", until);
    }(listener, received, Soon()));
    auto stream = co_await connector.Connect(ParseUrl("https://model.invalid/v1").value(), Soon());
    co_await group.Join();
    co_return stream;
  };
  auto refused = net::RunUntilDone(loop_, work());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("status 403"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(
      received.starts_with("CONNECT model.invalid:443 HTTP/1.1\r\nHost: model.invalid:443\r\n"))
      << received;
  auto direct = net::RunUntilDone(
      loop_, connector.Connect(ParseUrl("https://direct.invalid").value(), Soon()));
  EXPECT_NE(direct.error().message.find("cannot be resolved"), std::string::npos)
      << direct.error().message;
}

}  // namespace
}  // namespace caisson::http
