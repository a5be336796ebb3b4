#pragma once
// What a family reads of config.json for itself alone: a struct in its file, which its read() makes
// and its record() sees. Others compare and copy it.

#include <memory>
#include <type_traits>
#include <utility>

namespace subbyte {

struct ExpertConfig;

/// Its address stands for a type.
template <class T>
inline constexpr char kTypeTag = 0;

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
        part_([](const void* config, const void* tag) {
          return part_in(*static_cast<const C*>(config), tag);
        }) {}

  /// `C` is that of the family whose config this is.
  template <class C>
  const C& as() const {
    return *static_cast<const C*>(own_.get());
  }

  /// The struct itself, or its `experts`, if one of them is a `T`; else nullptr.
  template <class T>
  const T* part() const {
    return own_ == nullptr ? nullptr : static_cast<const T*>(part_(own_.get(), &kTypeTag<T>));
  }
  const ExpertConfig* experts() const { return part<ExpertConfig>(); }

  friend bool operator==(const FamilyConfig& a, const FamilyConfig& b) {
    if (a.own_ == nullptr || b.own_ == nullptr) return a.own_ == b.own_;
    return a.equal_ == b.equal_ && a.equal_(a.own_.get(), b.own_.get());
  }

 private:
  template <class C>
  static const void* part_in(const C& own, const void* tag) {
    if (tag == &kTypeTag<C>) return &own;
    if constexpr (requires { own.experts; }) {
      if (tag == &kTypeTag<std::remove_cvref_t<decltype(own.experts)>>) return &own.experts;
    }
    return nullptr;
  }

  std::shared_ptr<const void> own_;
  bool (*equal_)(const void*, const void*) = nullptr;
  const void* (*part_)(const void* own, const void* tag) = nullptr;
};

}  // namespace subbyte
