#pragma once

#include <span>

#include "machine.h"

namespace subbyte::interpreter {

/// Executes the instruction at which a thread waits for lanes of its warp, `threads`, if all that
/// it names are there. Returns whether they are.
bool meet_in_warp(std::span<Thread> threads, Thread& first);

}  // namespace subbyte::interpreter
