#pragma once
// The subcommands of ./dev gpu-bench and their options.

#include <CLI/CLI.hpp>

#include "bench/cuda/blocks_suite.h"
#include "bench/cuda/calls_suite.h"
#include "bench/cuda/delta_net_suite.h"
#include "bench/cuda/group_suite.h"
#include "bench/cuda/model_suite.h"
#include "bench/cuda/moe_suite.h"
#include "bench/cuda/step_suite.h"

namespace subbyte::bench {

/// Each adds a subcommand that fills `suite`, which must stay until the arguments are parsed.
CLI::App* add_blocks_suite(CLI::App& app, BlocksSuite& suite);
CLI::App* add_calls_suite(CLI::App& app, CallsSuite& suite);
CLI::App* add_delta_net_suite(CLI::App& app, DeltaNetSuite& suite);
CLI::App* add_group_suite(CLI::App& app, GroupSuite& suite);
CLI::App* add_model_suite(CLI::App& app, ModelSuite& suite);
CLI::App* add_moe_suite(CLI::App& app, MoeSuite& suite);
CLI::App* add_step_suite(CLI::App& app, StepSuite& suite);

}  // namespace subbyte::bench
