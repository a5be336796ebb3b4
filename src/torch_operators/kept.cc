#include "torch_operators/kept.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "torch_operators/gpu.h"

namespace subbyte::torch_operators {
namespace {

// Calls without a matrix after which it goes, or so many for each that is kept: a model may have
// thousands, which it asks for in turns.
constexpr int64_t kLongTime = 4096;
constexpr int64_t kLongTimeOfEach = 16;

/// Calls a method of torch that has one result.
Word call(const char* name, const Tensor& tensor) {
  Tensor handle = tensor.share();  // which the call takes
  Word stack = std::bit_cast<Word>(handle.release());
  check(functions().torch_call_dispatcher(name, "", &stack, kTorchVersion), name);
  return stack;
}

uint64_t checksum(std::span<const std::byte> bytes) {
  constexpr std::size_t kLanes = 4;
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15u;
  std::array<uint64_t, kLanes> sums = {1, 2, 3, 4};
  std::array<uint64_t, kLanes> words{};
  std::size_t at = 0;
  for (; at + sizeof(words) <= bytes.size(); at += sizeof(words)) {
    std::memcpy(words.data(), bytes.data() + at, sizeof(words));
    for (std::size_t i = 0; i < kLanes; ++i) {
      sums[i] = std::rotl((sums[i] ^ words[i]) * kFactor, 29);
    }
  }
  words = {};
  if (at < bytes.size()) std::memcpy(words.data(), bytes.data() + at, bytes.size() - at);
  uint64_t all = bytes.size();
  for (std::size_t i = 0; i < kLanes; ++i) {
    all = std::rotl((all ^ sums[i] ^ words[i]) * kFactor, 31);
  }
  return all;
}

/// What a tensor is: the same bytes mean something else in another type or shape.
struct Source {
  const void* data = nullptr;
  int32_t dtype = -1;
  std::vector<int64_t> sizes;
  uint64_t stamp = 0;  // the counter of what was written, or a checksum

  bool operator==(const Source&) const = default;
};

Source source_of(const Tensor* tensor) {
  if (tensor == nullptr) return {};
  Source source = {
      tensor->data(), tensor->dtype(), {tensor->sizes().begin(), tensor->sizes().end()}};
  const bool counted = (call("aten::is_inference", *tensor) & 1) == 0;
  if (counted) {
    source.stamp = call("aten::_version", *tensor);
  } else if (tensor->on_cpu()) {
    source.stamp = checksum(tensor->span());
  }
  return source;
}

/// A tensor of its own with the same memory, which then lives as long, whatever the one of the
/// caller is set to.
Tensor hold(const Tensor& tensor) {
  return Tensor(std::bit_cast<TensorHandle>(call("aten::detach", tensor)), tensor.name());
}

std::size_t key_of(const Recipe& recipe, const std::vector<Source>& sources) {
  std::size_t key = std::hash<std::string_view>()(recipe.name);
  const auto mix = [&key](std::size_t more) {
    key = std::rotl(key * 0x9E3779B97F4A7C15u, 29) ^ more;
  };
  for (const int64_t number : recipe.numbers) mix(static_cast<std::size_t>(number));
  for (const Source& source : sources) mix(std::hash<const void*>()(source.data));
  return key;
}

bool same_place(const Source& a, const Source& b) {
  return a.data == b.data && a.dtype == b.dtype && a.sizes == b.sizes;
}

struct Entry {
  std::size_t key = 0;
  Recipe recipe;
  std::vector<Source> sources;
  std::vector<Tensor> tensors;
  Kept kept;
  int64_t last_use = 0;
};

using Entries = std::list<Entry>;

struct Store {
  std::mutex mutex;
  Entries entries;  // the one that was used last comes first
  /// By key_of(): a model asks for its matrices in turns, so the next one is the last of the list.
  std::unordered_multimap<std::size_t, Entries::iterator> by_key;
  using Memory = std::pair<const void*, int64_t>;  // an address and bytes
  static Memory memory_of(const Tensor& tensor) { return {tensor.data(), tensor.num_bytes()}; }
  /// How many entries hold on to memory of the host: it is counted once.
  std::map<Memory, int64_t> holders;
  int64_t calls = 0;
  int64_t num_bytes = 0;

  void count(const Entry& entry) {
    num_bytes += entry.kept.bytes;
    for (const Tensor& tensor : entry.tensors) {
      if (tensor.on_cpu() && ++holders[memory_of(tensor)] == 1) num_bytes += tensor.num_bytes();
    }
  }
  void discount(const Entry& entry) {
    num_bytes -= entry.kept.bytes;
    for (const Tensor& tensor : entry.tensors) {
      if (!tensor.on_cpu() || --holders[memory_of(tensor)] > 0) continue;
      num_bytes -= tensor.num_bytes();
      holders.erase(memory_of(tensor));
    }
  }
};

/// Never destroyed: torch calls as long as the process lives.
Store& store() {
  static Store& all = *new Store;
  return all;
}

int64_t most_bytes() {
  static const int64_t most = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / 4 * 3;
  return most;
}

void let_go(Store& all, Entries::iterator entry) {
  all.discount(*entry);
  const auto [begin, end] = all.by_key.equal_range(entry->key);
  all.by_key.erase(std::find_if(begin, end, [&](const auto& one) { return one.second == entry; }));
  all.entries.erase(entry);
}

void let_go_of_old(Store& all) {
  const auto count = static_cast<int64_t>(all.entries.size());
  const int64_t long_time = std::max(kLongTime, kLongTimeOfEach * count);
  while (!all.entries.empty()) {
    const auto last = std::prev(all.entries.end());
    if (all.num_bytes <= most_bytes() && all.calls - last->last_use < long_time) return;
    let_go(all, last);
  }
}

/// What is kept of those sources, or nullptr; one whose tensors have changed is let go.
std::shared_ptr<const void> find(Store& all, std::size_t key, const Recipe& recipe,
                                 const std::vector<Source>& sources) {
  ++all.calls;
  const auto [begin, end] = all.by_key.equal_range(key);
  const auto place = std::find_if(begin, end, [&](const auto& one) {
    const Entry& entry = *one.second;
    return std::ranges::equal(entry.sources, sources, same_place) && entry.recipe == recipe;
  });
  if (place == end) return nullptr;
  const Entries::iterator found = place->second;
  if (found->sources != sources) {
    let_go(all, found);
    return nullptr;
  }
  found->last_use = all.calls;
  all.entries.splice(all.entries.begin(), all.entries, found);
  return found->kept.object;
}

/// What is made of tensors of a GPU goes through the host, or into memory that outlives a graph.
Status check_not_captured(const Recipe& recipe, std::span<const Tensor* const> sources) {
  for (const Tensor* tensor : sources) {
    if (tensor == nullptr || tensor->on_cpu()) continue;
    if (!is_captured(*tensor)) return {};
    return Error{
        "torch.capture",
        std::string(recipe.name) + ": " + tensor->name() +
            ": expected weights that a call before the capture of a CUDA graph has packed, "
            "found others; call once with the same tensors first, and let "
            "torch.compile take them for parameters (mode=\"reduce-overhead\"), as "
            "backend=\"cudagraphs\" copies them"};
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const void>> keep_object(const Recipe& recipe,
                                                std::span<const Tensor* const> sources,
                                                FunctionRef<Result<Kept>()> make) {
  const auto may_keep = [](const Tensor* tensor) {
    return tensor == nullptr || !tensor->is_copy();
  };
  const bool is_kept = std::ranges::all_of(sources, may_keep);
  std::vector<Source> places;
  std::size_t key = 0;
  if (is_kept) {
    places.reserve(sources.size());
    for (const Tensor* tensor : sources) places.push_back(source_of(tensor));
    key = key_of(recipe, places);
    const std::lock_guard lock(store().mutex);
    if (auto object = find(store(), key, recipe, places); object != nullptr) return object;
  }
  SUBBYTE_CHECK(check_not_captured(recipe, sources));
  SUBBYTE_TRY(Kept made, make());
  if (!is_kept) return std::move(made.object);
  Entry entry = {key, recipe, std::move(places), {}, made, 0};
  for (const Tensor* tensor : sources) {
    if (tensor != nullptr) entry.tensors.push_back(hold(*tensor));
  }
  Store& all = store();
  const std::lock_guard lock(all.mutex);
  entry.last_use = all.calls;
  all.count(entry);
  all.entries.push_front(std::move(entry));
  all.by_key.emplace(key, all.entries.begin());
  let_go_of_old(all);
  return std::move(made.object);
}

Result<std::shared_ptr<const Matrix>> keep(const Recipe& recipe,
                                           std::span<const Tensor* const> sources,
                                           FunctionRef<Result<Matrix>()> make) {
  SUBBYTE_TRY(auto kept, keep_object(recipe, sources, [&]() -> Result<Kept> {
                SUBBYTE_TRY(Matrix made, make());
                const int64_t bytes = made.view.bytes();
                return Kept{std::make_shared<const Matrix>(std::move(made)), bytes};
              }));
  return std::static_pointer_cast<const Matrix>(std::move(kept));
}

std::byte* allocate_part(Matrix& matrix, std::span<const std::byte>& part, int64_t size) {
  const auto count = static_cast<std::size_t>(size);
  const auto bytes = allocate_bytes(count);
  part = {bytes.get(), count};
  matrix.owners.push_back(bytes);
  return bytes.get();
}

Result<std::shared_ptr<const Matrix>> keep_on_host(const Tensor& tensor, const char* name) {
  return keep({name, {tensor.count()}, {}}, std::array{&tensor}, [&]() -> Result<Matrix> {
    Matrix matrix;
    std::ranges::copy(tensor.host().span(),
                      allocate_part(matrix, matrix.view.codes, tensor.num_bytes()));
    return matrix;
  });
}

void forget_all() {
  Entries old;
  Store& all = store();
  const std::lock_guard lock(all.mutex);
  all.by_key.clear();
  std::swap(old, all.entries);
  all.holders.clear();
  all.num_bytes = 0;
}

int64_t kept_bytes() {
  const std::lock_guard lock(store().mutex);
  return store().num_bytes;
}

}  // namespace subbyte::torch_operators
