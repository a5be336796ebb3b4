#pragma once
// A small generator with the same numbers on every machine (the standard library's distributions
// differ). SplitMix64: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014.

#include <cmath>
#include <cstdint>

namespace subbyte {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += kStep);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  /// As if next() had been called `count` times.
  void skip(uint64_t count) { state_ += count * kStep; }

  /// In [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  /// In [0, bound), bound >= 1. The bias of 2^-64 * bound does not matter here.
  uint64_t below(uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

  /// Standard normal, by Box and Muller.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;

  uint64_t state_;
};

}  // namespace subbyte
