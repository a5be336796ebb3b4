#pragma once
// The tensors of programs as tagged floats (exchange.cuh): where each lies, which tag each write
// has, and which writes have to wait for another program. Arithmetic on the host.
//
// No CTA waits for another but by reading what that has written. So a tensor may be written again
// only by an operation that knows, by what it reads itself, that all who read or wrote it before
// have ended. An operation knows that of the writers of its input, as it reads all of it, and of
// whatever these knew in turn:
//
//   0 x -> qkv    1 qkv -> a    2 a -> x    3 x -> g    4 g -> x    5 x -> qkv
//
// 5 knows 4, which knows 3, 2, 1 and 0: qkv may be written, since its reader 1 has ended.

#include <cstdint>
#include <optional>
#include <vector>

namespace subbyte::cuda {

class StepTensors {
 public:
  /// A tensor from `begin` on, in words, whose writes have had tags up to this one.
  struct Place {
    int64_t begin;
    uint32_t tag;
  };

  /// `capacity` in words.
  explicit StepTensors(int64_t capacity) : capacity_(capacity) {}

  /// True: the words must be set to zero before this program. Tags go on from program to program,
  /// so that old words are told from new ones.
  bool begin_program();

  /// The next operation, which reads `data`. Nothing: that was not written in this program.
  std::optional<Place> read(const void* data);

  /// The result of the last operation that read. `begins`: it is the first of several that write
  /// this tensor side by side. Nothing: it cannot be tagged, and the program must end with it.
  std::optional<Place> write(const void* data, int64_t words, bool begins = true);

 private:
  static constexpr uint32_t kLastTag = 255;

  struct Tensor {
    const void* data;
    int64_t words;
    Place place;
    // Operations of this program; -1: none.
    int first_writer = -1;
    int last_writer = -1;
    int last_reader = -1;
    int reader_before = -1;  // of the last writes of the tensor before this one
    int writer_before = -1;
  };

  Tensor* find(const void* data);
  Tensor* find_or_add(const void* data, int64_t words);
  int num_operations() const { return static_cast<int>(known_.size()); }

  int64_t capacity_;
  int64_t used_ = 0;
  std::vector<Tensor> tensors_;
  /// Of each operation: those before this one have ended when it has its inputs.
  std::vector<int> known_;
  bool is_full_ = false;
};

}  // namespace subbyte::cuda
