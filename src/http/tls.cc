// Key and certificate of a server, read again when they change.

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <string>
#include <utility>

#include "base/quote.h"
#include "http/connection.h"

namespace subbyte::http {
namespace {

using boost::system::error_code;

/// "FILE: expected ..., found what OpenSSL says".
Error tls_error(const std::string& file, std::string_view expected, const error_code& error) {
  return {"http.tls",
          file + ": expected " + std::string(expected) + ", found " + quote(error.message())};
}

error_code last_error() {
  return {static_cast<int>(::ERR_get_error()), boost::asio::error::get_ssl_category()};
}

}  // namespace

Status Server::State::load_certificate() {
  const std::string& key = options.key_file;
  const std::string& certificate = options.certificate_file;
  if (key.empty() && certificate.empty()) return {};
  if (key.empty() || certificate.empty()) {
    return Error{"http.tls", "expected a key and a certificate, found one of them"};
  }
  auto context = std::make_unique<TlsContext>(TlsContext::tls_server);
  SSL_CTX* const handle = context->native_handle();
  ::ERR_clear_error();
  ::SSL_CTX_set_min_proto_version(handle, TLS1_2_VERSION);
  ::SSL_CTX_set_options(handle, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  ::SSL_CTX_set_mode(handle, SSL_MODE_RELEASE_BUFFERS);
  error_code error;
  // A key with a password would ask the terminal for it.
  context->set_password_callback([](auto, auto) { return std::string(); }, error);
  context->use_certificate_chain_file(certificate, error);
  if (error) return tls_error(certificate, "certificates in PEM", error);
  context->use_private_key_file(key, TlsContext::pem, error);
  if (error) {
    return tls_error(key, "the key of " + certificate + " in PEM without a password", error);
  }
  if (::SSL_CTX_check_private_key(handle) != 1) {
    return tls_error(key, "the key of " + certificate, last_error());
  }
  tls = std::move(context);
  return {};
}

}  // namespace subbyte::http
