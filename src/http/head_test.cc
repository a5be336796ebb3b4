#include "http/head.h"

#include <gtest/gtest.h>

#include <string>

namespace subbyte::http {
namespace {

struct Head {
  Request request;
  Framing framing;
  int status = 0;  // of the refusal; 0: none
};

Head read(const std::string& text) {
  Head head;
  const auto refusal = read_head(text, head.request, head.framing);
  if (refusal) head.status = refusal->status;
  return head;
}

/// A request with these fields after its Host.
Head with(const std::string& fields) {
  return read("POST /v1/completions?a=b HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n");
}

TEST(Head, has_method_path_query_and_fields) {
  const Head head = with("Content-Length: 17\r\nX-Own:  two words \t\r\n");
  EXPECT_EQ(head.status, 0);
  EXPECT_EQ(head.request.method, "POST");
  EXPECT_EQ(head.request.path, "/v1/completions");
  EXPECT_EQ(head.request.query, "a=b");
  ASSERT_NE(head.request.find("x-own"), nullptr);
  EXPECT_EQ(*head.request.find("x-own"), "two words");
  EXPECT_EQ(head.framing.length, 17u);
  EXPECT_TRUE(head.framing.keeps_alive);
}

TEST(Head, has_the_host_of_a_whole_url) {
  const Head head = read("GET HTTP://a:1/b?c HTTP/1.1\r\nHost: other\r\n\r\n");
  EXPECT_EQ(head.status, 0);
  EXPECT_EQ(head.request.path, "/b");
  EXPECT_EQ(head.request.query, "c");
  EXPECT_EQ(*head.request.find("host"), "a:1");
  EXPECT_EQ(head.request.headers.size(), 1u);
  EXPECT_EQ(read("GET http://a HTTP/1.0\r\n\r\n").request.path, "/");
  EXPECT_EQ(read("GET http://a?b HTTP/1.0\r\n\r\n").request.query, "b");
  EXPECT_EQ(read("GET http://a/b HTTP/1.1\r\n\r\n").status, 400);  // without a Host
  for (const std::string url : {"http:///b", "http://a@b/", "ftp://a/", "a:80", "http://"}) {
    EXPECT_EQ(read("GET " + url + " HTTP/1.0\r\n\r\n").status, 400) << url;
  }
}

TEST(Head, says_when_the_connection_ends) {
  EXPECT_FALSE(with("Connection: x, Close\r\n").framing.keeps_alive);
  EXPECT_FALSE(read("GET / HTTP/1.0\r\n\r\n").framing.keeps_alive);
  EXPECT_TRUE(read("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").framing.keeps_alive);
}

TEST(Head, refuses_what_two_programs_could_read_in_two_ways) {
  const std::string bad[] = {
      "Content-Length: 1\r\nContent-Length: 1\r\n",
      "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding: gzip, chunked\r\n",
      "Transfer-Encoding: identity\r\n",
      "Content-Length: +1\r\n",
      "Content-Length: 1,1\r\n",
      "Content-Length: -1\r\n",
      "Content-Length: 0x10\r\n",
      "Content-Length:\r\n",
      "Content-Length: 1234567890123456789\r\n",
      "Content-Length : 1\r\n",
      " Content-Length: 1\r\n",
      "X: a\r\n b\r\n",
      "X: a\nY: b\r\n",
      "X: a\rY: b\r\n",
      std::string("X: a\0b\r\n", 8),
      "X: a\x01\r\n",
      "X\r\n",
      ": a\r\n",
      "X(Y): a\r\n",
      "Host: other\r\n",
  };
  for (const std::string& fields : bad) EXPECT_EQ(with(fields).status, 400) << fields;
}

TEST(Head, refuses_first_lines_that_are_none) {
  const std::string bad[] = {"GET /\r\nHost: h\r\n\r\n",
                             "GET  HTTP/1.1\r\nHost: h\r\n\r\n",
                             "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
                             "GET x HTTP/1.1\r\nHost: h\r\n\r\n",
                             "G(T / HTTP/1.1\r\nHost: h\r\n\r\n",
                             "GET / HTTP/1.1x\r\nHost: h\r\n\r\n",
                             "GET /\x7f HTTP/1.1\r\nHost: h\r\n\r\n",
                             "GET / HTTP/1.1\r\n\r\n",
                             "PRI * HTTP/2.0\r\n\r\n",
                             "\x16\x03\x01\r\n\r\n"};
  for (const std::string& head : bad) {
    const int status = read(head).status;
    EXPECT_TRUE(status == 400 || status == 505) << head << status;
  }
  EXPECT_EQ(read("GET / HTTP/3.0\r\nHost: h\r\n\r\n").status, 505);
}

TEST(Head, has_a_body_only_where_somebody_reads_it) {
  for (const std::string method : {"GET", "HEAD"}) {
    const std::string head = method + " /health HTTP/1.1\r\nHost: h\r\n";
    EXPECT_EQ(read(head + "Content-Length: 1\r\n\r\n").status, 400);
    EXPECT_EQ(read(head + "Transfer-Encoding: chunked\r\n\r\n").status, 400);
    EXPECT_EQ(read(head + "Content-Length: 0\r\n\r\n").status, 0);
  }
}

TEST(Head, has_limits) {
  const std::string path(kMaxTargetBytes, 'a');
  EXPECT_EQ(read("GET /" + path.substr(1) + " HTTP/1.1\r\nHost: h\r\n\r\n").status, 0);
  EXPECT_EQ(read("GET /" + path + " HTTP/1.1\r\nHost: h\r\n\r\n").status, 414);
  std::string fields;
  for (std::size_t i = 1; i < kMaxFields; ++i) fields += "X: a\r\n";
  EXPECT_EQ(with(fields).status, 0);
  EXPECT_EQ(with(fields + "X: a\r\n").status, 431);
  EXPECT_EQ(with("X: " + std::string(kMaxHeadBytes, 'a') + "\r\n").status, 431);
}

TEST(Head, is_refused_before_it_is_whole) {
  EXPECT_FALSE(check_beginning("GET / HTTP/1.1\r\nHost: h\r").has_value());
  EXPECT_TRUE(check_beginning("GET / HTTP/1.1\n").has_value());
  EXPECT_TRUE(check_beginning("\x16").has_value());
  EXPECT_TRUE(check_beginning(std::string(kMaxHeadBytes + 1, 'a')).has_value());
  EXPECT_FALSE(head_size("GET / HTTP/1.1\r\n").has_value());
  EXPECT_EQ(head_size("GET / HTTP/1.1\r\n\r\nrest"), 18u);
}

TEST(Head, meets_one_expectation) {
  EXPECT_TRUE(with("Expect: 100-Continue\r\n").framing.expects_continue);
  EXPECT_EQ(with("Expect: other\r\n").status, 417);
}

}  // namespace
}  // namespace subbyte::http
