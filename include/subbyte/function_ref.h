#pragma once
// A reference to something callable: two words, no allocation. For parameters that are called
// before the function returns; it does not keep the callable alive.

#include <memory>
#include <type_traits>
#include <utility>

#include "subbyte/version.h"

SUBBYTE_BEGIN_NAMESPACE

template <typename Signature>
class FunctionRef;

template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
           std::is_invocable_r_v<R, F&, Args...> && std::is_object_v<std::remove_reference_t<F>>)
      FunctionRef(F&& callable)  // implicit on purpose: callers write a lambda
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void* object, Args... args);
};

SUBBYTE_END_NAMESPACE
