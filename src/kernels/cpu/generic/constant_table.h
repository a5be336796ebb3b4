#pragma once
// Tables that are made when a kernel is compiled.

namespace subbyte::cpu {

template <class T, int kSize>
struct ConstantTable {
  alignas(64) T values[kSize];
};

/// values[i] = value(i)
template <class T, int kSize, class Value>
consteval ConstantTable<T, kSize> make_table(Value value) {
  ConstantTable<T, kSize> table{};
  for (int i = 0; i < kSize; ++i) table.values[i] = static_cast<T>(value(i));
  return table;
}

}  // namespace subbyte::cpu
