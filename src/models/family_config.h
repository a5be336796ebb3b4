#pragma once
// What a family reads of config.json for itself alone: a struct in its file, which its read() makes
// and its record() sees. Others compare and copy it.

#include <memory>
#include <type_traits>
#include <utility>

namespace subbyte {

struct ExpertConfig;

class FamilyConfig {
 public:
  FamilyConfig() = default;
  /// `C` has an operator==.
  template <class C>
  explicit FamilyConfig(C own)
      : own_(std::make_shared<const C>(std::move(own))),
        equal_([](const void* a, const void* b) {
          return *static_cast<const C*>(a) == *static_cast<const C*>(b);
        }),
        experts_(experts_in(static_cast<const C*>(own_.get()))) {}

  /// `C` is that of the family whose config this is.
  template <class C>
  const C& as() const {
    return *static_cast<const C*>(own_.get());
  }

  /// Those of `own`, or that it is; nullptr for other structs.
  const ExpertConfig* experts() const { return experts_; }

  friend bool operator==(const FamilyConfig& a, const FamilyConfig& b) {
    if (a.own_ == nullptr || b.own_ == nullptr) return a.own_ == b.own_;
    return a.equal_ == b.equal_ && a.equal_(a.own_.get(), b.own_.get());
  }

 private:
  template <class C>
  static const ExpertConfig* experts_in(const C* own) {
    if constexpr (std::is_same_v<C, ExpertConfig>) {
      return own;
    } else if constexpr (requires {
                           requires std::is_same_v<decltype(own->experts), ExpertConfig>;
                         }) {
      return &own->experts;
    } else {
      return nullptr;
    }
  }

  std::shared_ptr<const void> own_;
  bool (*equal_)(const void*, const void*) = nullptr;
  const ExpertConfig* experts_ = nullptr;
};

}  // namespace subbyte
