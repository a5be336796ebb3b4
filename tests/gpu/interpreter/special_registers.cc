// PTX ISA 9.0, "Special Registers".
#include <unordered_map>

#include "machine.h"

namespace subbyte::interpreter {
namespace {

constexpr uint32_t kNumSms = 132;
constexpr uint64_t kTicks = 10;  // of the clock for an instruction of any thread

const Dim& block(const Thread& t) {
  return grid_of(t).launch.block;
}
const Dim& grid(const Thread& t) {
  return grid_of(t).launch.grid;
}
const Dim& cluster(const Thread& t) {
  return grid_of(t).launch.cluster;
}
const Dim& cta(const Thread& t) {
  return t.cta->index;
}
uint32_t index(const Thread& t) {
  return static_cast<uint32_t>(t.index);
}

uint64_t clock_of(const Thread& t) {
  return grid_of(t).steps * kTicks;
}

uint64_t sm_of(const Thread& t) {
  const Dim& at = cta(t);
  return (at.x + grid(t).x * (at.y + uint64_t{grid(t).y} * at.z)) % kNumSms;
}

const std::unordered_map<std::string_view, SpecialRegister>& special_registers() {
  static const std::unordered_map<std::string_view, SpecialRegister> registers = {
      {"%tid.x", [](const Thread& t) -> uint64_t { return index(t) % block(t).x; }},
      {"%tid.y", [](const Thread& t) -> uint64_t { return index(t) / block(t).x % block(t).y; }},
      {"%tid.z", [](const Thread& t) -> uint64_t { return index(t) / block(t).x / block(t).y; }},
      {"%ntid.x", [](const Thread& t) -> uint64_t { return block(t).x; }},
      {"%ntid.y", [](const Thread& t) -> uint64_t { return block(t).y; }},
      {"%ntid.z", [](const Thread& t) -> uint64_t { return block(t).z; }},
      {"%ctaid.x", [](const Thread& t) -> uint64_t { return cta(t).x; }},
      {"%ctaid.y", [](const Thread& t) -> uint64_t { return cta(t).y; }},
      {"%ctaid.z", [](const Thread& t) -> uint64_t { return cta(t).z; }},
      {"%nctaid.x", [](const Thread& t) -> uint64_t { return grid(t).x; }},
      {"%nctaid.y", [](const Thread& t) -> uint64_t { return grid(t).y; }},
      {"%nctaid.z", [](const Thread& t) -> uint64_t { return grid(t).z; }},
      {"%laneid", [](const Thread& t) -> uint64_t { return index(t) % 32; }},
      {"%warpid", [](const Thread& t) -> uint64_t { return index(t) / 32; }},
      {"%lanemask_lt", [](const Thread& t) -> uint64_t { return (1u << t.lane()) - 1; }},
      {"%clock", [](const Thread& t) { return clock_of(t) & 0xffffffff; }},
      {"%clock64", clock_of},
      {"%globaltimer", clock_of},
      {"%smid", sm_of},
      {"%nsmid", [](const Thread&) -> uint64_t { return kNumSms; }},
      {"%cluster_ctarank", [](const Thread& t) -> uint64_t { return t.cta->rank; }},
      {"%cluster_nctarank", [](const Thread& t) -> uint64_t { return cluster(t).count(); }},
      {"%cluster_ctaid.x", [](const Thread& t) -> uint64_t { return cta(t).x % cluster(t).x; }},
      {"%cluster_nctaid.x", [](const Thread& t) -> uint64_t { return cluster(t).x; }},
      {"%clusterid.x", [](const Thread& t) -> uint64_t { return cta(t).x / cluster(t).x; }},
      {"%nclusterid.x", [](const Thread& t) -> uint64_t { return grid(t).x / cluster(t).x; }},
      {"%dynamic_smem_size",
       [](const Thread& t) -> uint64_t { return grid_of(t).launch.dynamic_shared; }},
      {"%total_smem_size", [](const Thread& t) -> uint64_t { return t.cta->shared.size(); }},
      {"WARP_SZ", [](const Thread&) -> uint64_t { return 32; }}};
  return registers;
}

}  // namespace

SpecialRegister find_special_register(std::string_view name) {
  const auto found = special_registers().find(name);
  return found == special_registers().end() ? nullptr : found->second;
}

}  // namespace subbyte::interpreter
