#pragma once
// What a family reads of config.json for itself alone: a struct in its file, which its read() makes
// and its record() sees. Others compare and copy it.

#include <memory>
#include <utility>

namespace subbyte {

class FamilyConfig {
 public:
  FamilyConfig() = default;
  /// `C` has an operator==.
  template <class C>
  explicit FamilyConfig(C own)
      : own_(std::make_shared<const C>(std::move(own))), equal_([](const void* a, const void* b) {
          return *static_cast<const C*>(a) == *static_cast<const C*>(b);
        }) {}

  /// `C` is that of the family whose config this is.
  template <class C>
  const C& as() const {
    return *static_cast<const C*>(own_.get());
  }

  friend bool operator==(const FamilyConfig& a, const FamilyConfig& b) {
    if (a.own_ == nullptr || b.own_ == nullptr) return a.own_ == b.own_;
    return a.equal_ == b.equal_ && a.equal_(a.own_.get(), b.own_.get());
  }

 private:
  std::shared_ptr<const void> own_;
  bool (*equal_)(const void*, const void*) = nullptr;
};

}  // namespace subbyte
