// Device "auto" with a GPU that the CPU plays and that refuses at every place where one can.

#include "backends/auto_device.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "backends/ranks.h"
#include "models/model.h"
#include "support/goldens.h"
#include "support/refusing_gpu.h"

namespace subbyte {
namespace {

using testing::Asked;
using testing::RefusingGpu;

struct Refusal {
  const char* name;
  Asked asked;
  std::string_view code;
};

constexpr Refusal kRefusals[] = {
    {"operations", Asked::kOperations, "linear.unsupported"},
    {"cache type", Asked::kCacheType, "kv.unsupported"},
    {"room", Asked::kRoom, "memory.device"},
    {"room of the driver", Asked::kRoom, "cuda.memory"},
    {"vector", Asked::kVector, "cuda.copy"},
    {"matrix", Asked::kMatrix, "linear.unsupported"},
    {"experts", Asked::kExperts, "linear.unsupported"},
    {"experts that differ", Asked::kExperts, "recast.element"},
    {"step", Asked::kStep, "linear.unsupported"},
    {"cache", Asked::kCache, "kv.memory"},
    {"cache of other heads", Asked::kCache, "kv.unsupported"},
};

/// A machine with such a GPU, and what is said there.
class Machines {
 public:
  explicit Machines(Asked asked = Asked::kNothing, std::string_view code = "") {
    device_.find_gpu = []() -> Result<int> { return 3; };
    device_.on_choice = [this](const std::string& choice) { said_.push_back(choice); };
    device_.make = [this, asked,
                    code](const DeviceOptions& options) -> Result<std::unique_ptr<Backend>> {
      const bool is_part = options.gpu_layers == kGpuLayersThatFit;
      made_.push_back(options.device + (is_part ? ", what fits" : ""));
      DeviceOptions cpu = options;
      cpu.device = "cpu";
      cpu.num_threads = 2;
      cpu.gpu_layers = -1;
      auto backend = make_backend(cpu);
      if (!backend.ok() || options.device == "cpu" || is_part) return backend;
      return std::unique_ptr<Backend>(std::make_unique<RefusingGpu>(
          std::move(backend).value(), asked, Error(code, "the GPU says no")));
    };
  }

  /// Loads the model and makes a cache, on the machine of that name.
  Status load(std::string_view device, int gpu_layers = -1) {
    const DeviceOptions options = {.device = std::string(device), .gpu_layers = gpu_layers};
    SUBBYTE_TRY(machine_, choose_machine(options, device_));
    return load_on_machine(options, device_, machine_, [this]() -> Status {
      const auto path = std::filesystem::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-moe-bf16";
      SUBBYTE_TRY(auto model, load_model(path, *machine_));
      SUBBYTE_TRY(pool_, model->make_kv_pool(*machine_, Element::kF16, {256}));
      model_ = std::move(model);
      return {};
    });
  }

  /// A step of the model that was loaded.
  Status step() {
    Sequence sequence(*pool_, 16);
    const std::vector<int32_t> tokens = {1, 2, 3};
    const Part part = {&sequence, tokens, 1};
    Logits logits;
    return model_->forward(*machine_, {{&part, 1}}, logits);
  }

  AutoDevice& device() { return device_; }
  Backend& machine() { return *machine_; }
  const std::vector<std::string>& said() const { return said_; }
  const std::vector<std::string>& made() const { return made_; }

 private:
  AutoDevice device_;
  std::vector<std::string> said_;
  std::vector<std::string> made_;  // devices
  std::unique_ptr<Backend> machine_;
  std::unique_ptr<Model> model_;
  std::optional<KvPool> pool_;
};

using Texts = std::vector<std::string>;

TEST(AutoDevice, gives_a_gpu_what_fits_where_not_all_layers_do) {
  for (const char* const device : {"auto", "cuda:3"}) {
    Machines large;
    ASSERT_TRUE(large.load(device, kGpuLayersThatFit).ok());
    EXPECT_EQ(large.made(), (Texts{"cuda:3"}));
    Machines small(Asked::kRoom, "memory.device");
    ASSERT_TRUE(small.load(device, kGpuLayersThatFit).ok());
    EXPECT_EQ(small.made(), (Texts{"cuda:3", "cuda:3, what fits"}));
    EXPECT_TRUE(small.step().ok());
  }
  Machines other(Asked::kCacheType, "kv.unsupported");
  EXPECT_EQ(other.load("cuda:3", kGpuLayersThatFit).error().code, "kv.unsupported");
}

TEST(AutoDevice, looks_for_no_gpu_where_no_layers_are_to_be_on_one) {
  Machines machines;
  ASSERT_TRUE(machines.load("auto", 0).ok());
  EXPECT_EQ(machines.made(), Texts{"cpu"});
  EXPECT_EQ(machines.said(), Texts{});
}

TEST(AutoDevice, takes_the_cpu_and_says_one_line_wherever_the_gpu_refuses) {
  for (const Refusal& refusal : kRefusals) {
    Machines machines(refusal.asked, refusal.code);
    const Status loaded = machines.load("auto");
    ASSERT_TRUE(loaded.ok()) << refusal.name << ": " << loaded.error().message;
    EXPECT_EQ(machines.made(), (Texts{"cuda:3", "cpu"})) << refusal.name;
    ASSERT_EQ(machines.said().size(), 1u) << refusal.name;
    EXPECT_TRUE(machines.said().front().starts_with("takes the CPU: ")) << refusal.name;
    EXPECT_TRUE(machines.said().front().ends_with("the GPU says no")) << machines.said().front();
    EXPECT_EQ(machines.machine().memory(), nullptr) << refusal.name;
    EXPECT_TRUE(machines.step().ok()) << refusal.name;
  }
}

TEST(AutoDevice, that_is_named_refuses_with_the_error_of_the_gpu) {
  for (const Refusal& refusal : kRefusals) {
    Machines machines(refusal.asked, refusal.code);
    const Status loaded = machines.load("cuda:3");
    ASSERT_FALSE(loaded.ok()) << refusal.name;
    EXPECT_EQ(loaded.error().code, refusal.code) << refusal.name;
    EXPECT_TRUE(loaded.error().message.ends_with("the GPU says no")) << loaded.error().message;
    EXPECT_EQ(machines.made(), Texts{"cuda:3"}) << refusal.name;
    EXPECT_TRUE(machines.said().empty()) << refusal.name;
  }
}

TEST(AutoDevice, says_that_a_gpu_takes_the_model_when_it_has) {
  Machines machines;
  ASSERT_TRUE(machines.load("auto").ok());
  EXPECT_EQ(machines.said(), Texts{"takes a GPU"});
  EXPECT_TRUE(machines.step().ok());
  Machines named;
  ASSERT_TRUE(named.load("cuda:3").ok());
  EXPECT_TRUE(named.said().empty());
}

TEST(AutoDevice, takes_the_cpu_where_no_gpu_can_be_made) {
  const auto expect_cpu = [](Machines& machines, const std::string& reason) {
    const Status loaded = machines.load("auto");
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(machines.said(), Texts{"takes the CPU: " + reason});
    EXPECT_EQ(machines.machine().memory(), nullptr);
  };
  Machines none;
  none.device().find_gpu = []() -> Result<int> { return Error{"cuda.device", "no driver"}; };
  expect_cpu(none, "no driver");
  Machines full;
  full.device().make = [](const DeviceOptions& options) -> Result<std::unique_ptr<Backend>> {
    if (options.device != "cpu") return Error{"cuda.device", "out of memory"};
    return make_backend(options);
  };
  expect_cpu(full, "out of memory");
  ASSERT_FALSE(full.load("cuda").ok());
}

TEST(AutoDevice, refuses_gpus_that_cannot_be_the_ranks_that_were_asked_for) {
  for (const char* const code : {"device.ranks", "cuda.peer_access"}) {
    Machines machines;
    machines.device().make = [code](const DeviceOptions&) -> Result<std::unique_ptr<Backend>> {
      return Error{code, "the GPUs say no"};
    };
    const Status loaded = machines.load("auto");
    ASSERT_FALSE(loaded.ok()) << code;
    EXPECT_EQ(loaded.error().code, code);
    EXPECT_TRUE(machines.said().empty()) << code;
  }
}

/// This process as the first of two that mpirun has started.
class FirstOfTwo {
 public:
  FirstOfTwo() {
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  }
  FirstOfTwo(const FirstOfTwo&) = delete;
  FirstOfTwo& operator=(const FirstOfTwo&) = delete;
  ~FirstOfTwo() {
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("OMPI_COMM_WORLD_SIZE");
  }
};

TEST(AutoDevice, has_one_error_where_processes_have_met_to_be_one_model) {
  const FirstOfTwo place;
  for (const DeviceOptions& options : {DeviceOptions{.device = "auto", .tensor_parallel_size = 2},
                                       DeviceOptions{.device = "auto", .pipeline_parallel_size = 2},
                                       DeviceOptions{.device = "auto"}}) {
    std::vector<std::string> made;
    AutoDevice device;
    device.find_gpu = []() -> Result<int> { return 3; };
    device.make = [&](const DeviceOptions& one) -> Result<std::unique_ptr<Backend>> {
      made.push_back(one.device);
      return Error{"cuda.memory", "the GPU says no"};
    };
    const auto machine = choose_machine(options, device);
    ASSERT_FALSE(machine.ok());
    EXPECT_EQ(machine.error().message, "the GPU says no");
    const bool is_alone = options.tensor_parallel_size == 1 && options.pipeline_parallel_size == 1;
    EXPECT_EQ(made, is_alone ? (Texts{"cuda:3", "cpu"}) : Texts{"cuda:3"});
  }
}

TEST(AutoDevice, takes_the_cpu_for_options_that_gpus_do_not_have) {
  Machines machines;
  const DeviceOptions options = {.device = "auto", .activations = Activations::kInt8};
  const auto machine = choose_machine(options, machines.device());
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  EXPECT_EQ((*machine)->memory(), nullptr);
  EXPECT_EQ(machines.made(), Texts{"cpu"});
  ASSERT_EQ(machines.said().size(), 1u);
  EXPECT_NE(machines.said().front().find("not int8"), std::string::npos);
}

TEST(AutoDevice, refuses_divisions_that_no_machine_has) {
  for (const DeviceOptions& options :
       {DeviceOptions{.gpu_layers = -3}, DeviceOptions{.tensor_parallel_size = 2, .gpu_layers = 3},
        DeviceOptions{.pipeline_parallel_size = 2, .gpu_layers = 3},
        DeviceOptions{.tensor_parallel_size = 2, .gpu_layers = kGpuLayersThatFit}}) {
    const auto machine = make_backend(options);
    ASSERT_FALSE(machine.ok());
    EXPECT_EQ(machine.error().code, "device.stages") << machine.error().message;
  }
  const auto unknown = make_backend({.device = "nonsense", .gpu_layers = 0});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, "device.unknown");
}

TEST(AutoDevice, may_have_bf16_where_gpus_would_have_f16) {
  std::vector<std::pair<std::string, Activations>> made;
  AutoDevice device;
  device.make = [&](const DeviceOptions& options) -> Result<std::unique_ptr<Backend>> {
    made.emplace_back(options.device, options.activations);
    return Error{"cuda.device", "none"};
  };
  device = with_wide_activations(device);
  for (const Activations activations : {Activations::kF32, Activations::kMxfp8}) {
    for (const char* const name : {"cpu", "cuda:1"}) {
      EXPECT_FALSE(choose_machine({.device = name, .activations = activations}, device).ok());
    }
  }
  using Made = std::vector<std::pair<std::string, Activations>>;
  EXPECT_EQ(made, (Made{{"cpu", Activations::kWide},
                        {"cuda:1", Activations::kWide},
                        {"cpu", Activations::kMxfp8},
                        {"cuda:1", Activations::kMxfp8}}));
}

/// The options with which two GPUs are made as ranks in processes of their own, of which the first
/// one alone may know that its model has wide activations.
std::array<CudaOptions, 2> made_as_ranks(bool is_wide) {
  auto exchanges = make_thread_exchanges(2);
  std::array<CudaOptions, 2> made;
  const auto choose = [&](int rank) {
    AutoDevice device;
    device.make = [&, rank](const DeviceOptions& asked) -> Result<std::unique_ptr<Backend>> {
      const CudaOptions own = {.is_bf16 = asked.activations == Activations::kWide,
                               .step_kernel_tokens = asked.step_kernel_tokens};
      SUBBYTE_TRY(made[rank], as_first_rank(*exchanges[rank], own));
      return Error{"cuda.device", "none"};
    };
    if (is_wide && rank == 0) device = with_wide_activations(device);
    const DeviceOptions options = {.device = "cuda:0", .step_kernel_tokens = 3 + rank};
    EXPECT_EQ(choose_machine(options, device).error().code, "cuda.device");
  };
  std::thread other(choose, 1);
  choose(0);
  other.join();
  return made;
}

TEST(AutoDevice, is_that_of_the_first_rank_on_gpus_of_other_processes) {
  for (const bool is_wide : {true, false}) {
    for (const CudaOptions& options : made_as_ranks(is_wide)) {
      EXPECT_EQ(options.is_bf16, is_wide);
      EXPECT_EQ(options.step_kernel_tokens, 3);
    }
  }
}

TEST(AutoDevice, keeps_errors_that_are_not_of_the_machine) {
  for (const auto& [asked, code] :
       {std::pair(Asked::kMatrix, "safetensors.truncated"), {Asked::kStep, "model.config"}}) {
    Machines machines(asked, code);
    const Status loaded = machines.load("auto");
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, code);
    EXPECT_TRUE(machines.said().empty());
    EXPECT_EQ(machines.made(), Texts{"cuda:3"});
  }
}

}  // namespace
}  // namespace subbyte
