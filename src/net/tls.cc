#include "net/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <array>
#include <utility>

namespace caisson::net {
namespace {

constexpr size_t kChunk = 16 * 1024;

std::string LastError() {
  std::array<char, 256> text{};
  unsigned long code = ERR_get_error();
  if (code == 0) return "no detail";
  ERR_error_string_n(code, text.data(), text.size());
  ERR_clear_error();
  return text.data();
}

}  // namespace

struct TlsContext::Impl {
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{nullptr, &SSL_CTX_free};
};

TlsContext::TlsContext(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsContext::~TlsContext() = default;

Result<std::shared_ptr<TlsContext>> TlsContext::Make(const std::string& ca_file) {
  auto impl = std::make_unique<Impl>();
  impl->context.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX* context = impl->context.get();
  if (context == nullptr) return Fail(ErrorCode::kInternal, "TLS cannot be set up", LastError());
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  if (SSL_CTX_set_default_verify_paths(context) != 1) {
    return Fail(ErrorCode::kInvalidConfig, "the system's certificate authorities cannot be loaded",
                LastError());
  }
  if (!ca_file.empty() && SSL_CTX_load_verify_file(context, ca_file.c_str()) != 1) {
    return Fail(ErrorCode::kInvalidConfig,
                "the certificate authorities in " + ca_file + " cannot be loaded", LastError());
  }
  return std::shared_ptr<TlsContext>(new TlsContext(std::move(impl)));
}

// OpenSSL works on memory here; the bytes travel over the inner stream.
class TlsStream final : public Stream {
 public:
  TlsStream(std::shared_ptr<TlsContext> context, StreamPtr inner)
      : context_(std::move(context)),
        inner_(std::move(inner)),
        ssl_(SSL_new(context_->impl_->context.get()), &SSL_free),
        incoming_(BIO_new(BIO_s_mem())),
        outgoing_(BIO_new(BIO_s_mem())) {
    SSL_set_bio(ssl_.get(), incoming_, outgoing_);  // owned by ssl_ from here on
  }

  Task<Result<void>> Handshake(std::string host, Until until) {
    unsigned char address[16];
    bool numeric = ::inet_pton(AF_INET, host.c_str(), address) == 1 ||
                   ::inet_pton(AF_INET6, host.c_str(), address) == 1;
    bool named = numeric
                     ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), host.c_str()) == 1
                     : SSL_set1_host(ssl_.get(), host.c_str()) == 1 &&
                           SSL_set_tlsext_host_name(ssl_.get(), host.c_str()) == 1;
    if (!named) co_return Fail(ErrorCode::kInvalidArgument, "\"" + host + "\" is not a host name");
    SSL_set_connect_state(ssl_.get());
    for (;;) {
      ERR_clear_error();
      int code = SSL_do_handshake(ssl_.get());
      int why = SSL_get_error(ssl_.get(), code);
      std::string detail = code == 1 || why == SSL_ERROR_WANT_READ ? "" : Explain();
      CAISSON_CO_TRY(co_await Flush(until));
      if (code == 1) co_return Result<void>();
      if (why != SSL_ERROR_WANT_READ) {
        co_return Fail(ErrorCode::kUnavailable,
                       "the TLS handshake with " + host + " failed: " + detail);
      }
      CAISSON_CO_ASSIGN(bool more, co_await Pull(until));
      if (!more) {
        co_return Fail(ErrorCode::kConnectionLost, host + " closed during the TLS handshake");
      }
    }
  }

  Task<Result<size_t>> Read(std::span<char> buffer, Until until) override {
    for (;;) {
      ERR_clear_error();
      size_t got = 0;
      int code = SSL_read_ex(ssl_.get(), buffer.data(), buffer.size(), &got);
      if (code == 1) co_return got;
      int why = SSL_get_error(ssl_.get(), code);
      if (why == SSL_ERROR_ZERO_RETURN) co_return size_t{0};
      if (why != SSL_ERROR_WANT_READ) co_return Fail(Broken());
      CAISSON_CO_TRY(co_await Flush(until));
      CAISSON_CO_ASSIGN(bool more, co_await Pull(until));
      // The end without a close notification: somebody may have cut the stream.
      if (!more) co_return Fail(ErrorCode::kConnectionLost, "the TLS connection was cut");
    }
  }

  Task<Result<void>> Write(std::string_view data, Until until) override {
    while (!data.empty()) {
      ERR_clear_error();
      size_t written = 0;
      std::string_view piece = data.substr(0, kChunk);
      if (SSL_write_ex(ssl_.get(), piece.data(), piece.size(), &written) != 1) {
        co_return Fail(Broken());
      }
      data.remove_prefix(written);
      CAISSON_CO_TRY(co_await Flush(until));
    }
    co_return Result<void>();
  }

  Task<Result<void>> CloseWrite(Until until) override {
    SSL_shutdown(ssl_.get());
    CAISSON_CO_TRY(co_await Flush(until));
    co_return co_await inner_->CloseWrite(std::move(until));
  }

  bool Quiet() const override {
    return SSL_has_pending(ssl_.get()) == 0 && BIO_ctrl_pending(incoming_) == 0 && inner_->Quiet();
  }

 private:
  Error Broken() const {
    return Error{ErrorCode::kConnectionLost, "the TLS connection broke", LastError(), std::nullopt};
  }
  std::string Explain() const {
    long verified = SSL_get_verify_result(ssl_.get());
    if (verified != X509_V_OK) return X509_verify_cert_error_string(verified);
    return LastError();
  }

  // Sends what OpenSSL wants sent. A read and a write may both come here: one of them sends, for
  // both, in order.
  Task<Result<void>> Flush(Until until) {
    if (flushing_) co_return Result<void>();
    flushing_ = true;
    Result<void> sent;
    std::array<char, kChunk + 2048> buffer;
    while (sent && BIO_ctrl_pending(outgoing_) > 0) {
      int got = BIO_read(outgoing_, buffer.data(), static_cast<int>(buffer.size()));
      if (got <= 0) break;
      sent = co_await inner_->Write({buffer.data(), static_cast<size_t>(got)}, until);
    }
    flushing_ = false;
    co_return sent;
  }

  // Takes bytes from the inner stream; false at its end.
  Task<Result<bool>> Pull(Until until) {
    std::string buffer(kChunk, '\0');
    CAISSON_CO_ASSIGN(size_t got, co_await inner_->Read(buffer, std::move(until)));
    if (got == 0) co_return false;
    BIO_write(incoming_, buffer.data(), static_cast<int>(got));
    co_return true;
  }

  std::shared_ptr<TlsContext> context_;
  StreamPtr inner_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  BIO* incoming_;
  BIO* outgoing_;
  bool flushing_ = false;
};

Task<Result<StreamPtr>> StartTls(std::shared_ptr<TlsContext> context, StreamPtr stream,
                                 std::string host, Until until) {
  auto tls = std::make_unique<TlsStream>(std::move(context), std::move(stream));
  CAISSON_CO_TRY(co_await tls->Handshake(std::move(host), std::move(until)));
  co_return tls;
}

}  // namespace caisson::net
