// Kernels: clusters of CTAs one after the other, the warps of a cluster in turns.
#include <algorithm>
#include <cstdlib>
#include <span>

#include "machine.h"
#include "report.h"
#include "warp.h"

namespace subbyte::interpreter {
namespace {

constexpr int kTurn = 4000;          // instructions of a thread before others
constexpr int kTurnsAlone = 64;      // of the clusters that run, before one more begins
constexpr int kMostTurns = 2000000;  // of polling threads, before they are said to hang
constexpr uint8_t kPoison = 0xff;
constexpr size_t kSharedAlignment = 128;

// --- barriers

int operand_value(const Thread& thread, const Instruction& in, size_t i) {
  return static_cast<int>(value_of(thread, in.operands[i]));
}

/// Tells those who wait for a barrier that it is complete.
void release(Barrier& barrier) {
  const Barrier done = std::move(barrier);
  barrier = Barrier{};
  for (Thread* thread : done.waiting) {
    const Instruction& in = thread->instruction();
    if (in.has("red")) {
      const bool all = done.num_true == done.arrived;
      const uint64_t any = done.num_true > 0 ? 1 : 0;
      set(*thread, in.operands[0],
          in.operation == Operation::kPopulation ? static_cast<uint64_t>(done.num_true)
          : in.operation == Operation::kAnd      ? uint64_t{all}
                                                 : any);
    }
    thread->go_on();
  }
}

/// bar.sync a {, b}; bar.arrive a, b; bar.red p, a {, b}, q
bool meet_at_barrier(Cta& cta, Thread& thread) {
  const Instruction& in = thread.instruction();
  const bool reduces = in.has("red");
  const bool only_arrives = in.has("arrive");
  const size_t name = reduces ? 1 : 0;
  Barrier& barrier = cta.barriers[operand_value(thread, in, name) & 15];
  const bool has_count = in.operands.size() > (reduces ? 3 : 1);
  const int expected = has_count ? operand_value(thread, in, name + 1) : cta.alive;
  if (!thread.arrived) {
    thread.arrived = true;
    ++barrier.arrived;
    ++cta.cluster->progress;
    if (reduces && truth_of(thread, in.operands.back())) ++barrier.num_true;
    if (only_arrives) {
      thread.go_on();
    } else {
      barrier.waiting.push_back(&thread);
    }
  }
  if (barrier.arrived > expected) stop("%d of %d threads at a barrier", barrier.arrived, expected);
  if (barrier.arrived < expected || barrier.waiting.empty()) return only_arrives;
  release(barrier);
  return true;
}

bool arrive_at_cluster(Cluster& cluster, Thread& thread) {
  thread.generation = cluster.generation;
  thread.go_on();
  if (++cluster.arrived >= cluster.alive) {
    cluster.arrived = 0;
    ++cluster.generation;
  }
  return true;
}

bool wait_for_cluster(const Cluster& cluster, Thread& thread) {
  if (cluster.generation == thread.generation) return false;
  thread.go_on();
  return true;
}

bool meet_others(Cta& cta, std::span<Thread> warp, Thread& thread) {
  here.instruction = &thread.instruction();
  here.thread = thread.index;
  switch (thread.instruction().waits) {
    case Waits::kBarrier:
      return meet_at_barrier(cta, thread);
    case Waits::kClusterArrive:
      return arrive_at_cluster(*cta.cluster, thread);
    case Waits::kClusterWait:
      return wait_for_cluster(*cta.cluster, thread);
    default:
      return meet_in_warp(warp, thread);
  }
}

// --- turns

bool run_warp(Cta& cta, std::span<Thread> warp) {
  bool got_on = false;
  for (Thread& thread : warp) {
    if (thread.state == State::kRuns) got_on |= run_thread(thread, kTurn);
  }
  for (Thread& thread : warp) {
    if (thread.state == State::kWaits) got_on |= meet_others(cta, warp, thread);
  }
  return got_on;
}

bool run_cluster(Cluster& cluster) {
  bool got_on = false;
  const uint64_t before = cluster.progress;
  for (const std::unique_ptr<Cta>& cta : cluster.ctas) {
    here.cta[0] = cta->index.x;
    here.cta[1] = cta->index.y;
    here.cta[2] = cta->index.z;
    const std::span<Thread> threads = cta->threads;
    for (size_t first = 0; first < threads.size() && cta->alive > 0; first += 32) {
      got_on |=
          run_warp(*cta, threads.subspan(first, std::min<size_t>(32, threads.size() - first)));
    }
  }
  return got_on || cluster.progress != before;
}

std::unique_ptr<Cta> make_cta(Grid& grid, Cluster& cluster, const Dim& index) {
  auto cta = std::make_unique<Cta>();
  const Function& function = *grid.function;
  const size_t fixed = function.shared_bytes + kSharedAlignment - 1;
  cta->cluster = &cluster;
  cta->rank = static_cast<uint32_t>(cluster.ctas.size());
  cta->index = index;
  cta->static_shared = fixed / kSharedAlignment * kSharedAlignment;
  cta->shared.assign(cta->static_shared + grid.launch.dynamic_shared, kPoison);
  cta->threads = std::vector<Thread>(grid.launch.block.count());
  cta->alive = static_cast<int>(cta->threads.size());
  int next = 0;
  for (Thread& thread : cta->threads) {
    thread.cta = cta.get();
    thread.index = next++;
    enter(thread, function);
    std::copy(grid.parameters.begin(), grid.parameters.end(), thread.frame().parameters);
  }
  return cta;
}

std::unique_ptr<Cluster> make_cluster(Grid& grid, const Dim& first) {
  auto cluster = std::make_unique<Cluster>();
  cluster->grid = &grid;
  const Dim& size = grid.launch.cluster;
  for (uint32_t z = 0; z < size.z; ++z) {
    for (uint32_t y = 0; y < size.y; ++y) {
      for (uint32_t x = 0; x < size.x; ++x) {
        cluster->ctas.push_back(make_cta(grid, *cluster, {first.x + x, first.y + y, first.z + z}));
        cluster->alive += cluster->ctas.back()->alive;
      }
    }
  }
  return cluster;
}

/// The clusters of a grid. One begins when those that run wait for something that is not there, or
/// have polled for a while: a kernel may count on those before it, and on all that a GPU has room
/// for at once.
class Schedule {
 public:
  explicit Schedule(Grid& grid);
  void run();

 private:
  /// Gives each cluster a turn. Returns whether one got on.
  bool run_turn();
  void begin_next();
  bool finish_copy();
  [[noreturn]] void report_hang() const;

  Grid& grid_;
  std::deque<Dim> waiting_;
  std::vector<std::unique_ptr<Cluster>> running_;
};

Schedule::Schedule(Grid& grid) : grid_(grid) {
  const Dim& size = grid.launch.grid;
  const Dim& step = grid.launch.cluster;
  for (uint32_t z = 0; z < size.z; z += step.z) {
    for (uint32_t y = 0; y < size.y; y += step.y) {
      for (uint32_t x = 0; x < size.x; x += step.x) waiting_.push_back({x, y, z});
    }
  }
}

bool Schedule::run_turn() {
  bool got_on = false;
  for (const std::unique_ptr<Cluster>& cluster : running_) got_on |= run_cluster(*cluster);
  return got_on;
}

void Schedule::begin_next() {
  running_.push_back(make_cluster(grid_, waiting_.front()));
  waiting_.pop_front();
}

bool Schedule::finish_copy() {
  bool found = false;
  for (const std::unique_ptr<Cluster>& cluster : running_) found |= cluster->finish_copy();
  return found;
}

void Schedule::report_hang() const {
  for (const std::unique_ptr<Cluster>& cluster : running_) {
    for (const std::unique_ptr<Cta>& cta : cluster->ctas) {
      for (size_t first = 0; first < cta->threads.size(); first += 32) {
        const Thread& thread = cta->threads[first];
        const bool ended = thread.state == State::kEnded;
        remark("CTA %u %u %u, warp %zu: %s", cta->index.x, cta->index.y, cta->index.z, first / 32,
               ended ? "has ended" : thread.instruction().text.c_str());
      }
    }
  }
  stop("a kernel hangs");
}

void Schedule::run() {
  int turns = 0;
  while (!waiting_.empty() || !running_.empty()) {
    if (running_.empty()) begin_next();
    const bool got_on = run_turn();
    ++turns;
    const size_t ended = std::erase_if(running_, [](const auto& cluster) {
      if (cluster->alive > 0) return false;
      if (!cluster->copies.empty()) stop("a CTA ends before copies to it have arrived");
      return true;
    });
    if (ended > 0) turns = 0;
    const bool may_begin = !waiting_.empty() && !running_.empty();
    if (got_on && (turns < kTurnsAlone || (!may_begin && turns < kMostTurns))) continue;
    if (!got_on && finish_copy()) continue;
    if (may_begin) {
      begin_next();
      turns = 0;
    } else if (!running_.empty()) {
      report_hang();
    }
  }
}

std::vector<uint8_t> parameters_of(const Function& function, const Arguments& arguments) {
  if (arguments.size() != function.parameter_names.size()) {
    stop("%zu arguments, not %zu", arguments.size(), function.parameter_names.size());
  }
  std::vector<uint8_t> bytes(function.parameter_bytes);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Variable& parameter = function.parameters.at(function.parameter_names[i]);
    std::copy_n(arguments[i].begin(), parameter.bytes,
                bytes.begin() + static_cast<std::ptrdiff_t>(parameter.offset));
  }
  return bytes;
}

}  // namespace

ModulePointer make_module(std::string_view ptx) {
  auto module = std::make_shared<Module>();
  module->text = ptx;
  read_variables(*module);
  return module;
}

bool has_kernel(const Module& module, const std::string& name) {
  return module.text.find(".entry " + name) != std::string::npos;
}

KernelFacts facts_of(Module& module, const std::string& name) {
  const Function* function = find_function(module, name);
  if (function == nullptr) stop("no kernel %s", name.c_str());
  KernelFacts facts{
      function->max_threads, function->cluster, static_cast<int>(function->shared_bytes), {}};
  for (const std::string& parameter : function->parameter_names) {
    facts.parameter_bytes.push_back(function->parameters.at(parameter).bytes);
  }
  return facts;
}

void run_kernel(Module& module, const std::string& name, const Launch& launch,
                const Arguments& arguments) {
  report_signals();
  const Place before = here;
  here = {name.c_str(), nullptr, {}, -1};
  Grid grid{find_function(module, name), launch, {}, 0, false};
  if (grid.function == nullptr) stop("there is no such kernel");
  grid.parameters = parameters_of(*grid.function, arguments);
  grid.copies_at_once = std::getenv("SUBBYTE_COPIES_AT_ONCE") != nullptr;
  Schedule(grid).run();
  here = before;
}

}  // namespace subbyte::interpreter
