#pragma once
// The tensors of programs as tagged floats (exchange.cuh): where each lies, which tag each write
// has, and which writes have to wait for another program. Arithmetic on the host.
//
// No CTA waits for another but by reading what that has written. So a tensor may be written again
// only by an operation that knows, by what it reads itself, that all who read or wrote it before
// have ended. A product knows that of the writers of its input, as every CTA that writes a part of
// the result reads all of it (who writes nothing reads nothing), and of whatever these knew in
// turn. A CTA of an attention reads the heads that it needs: it knows what their writers knew.
//
//   0 x -> qkv    1 qkv -> a    2 a -> x    3 x -> g    4 g -> x    5 x -> qkv
//
// 5 knows 4, which knows 3, 2, 1 and 0: qkv may be written, since its reader 1 has ended.

#include <cstdint>
#include <optional>
#include <vector>

namespace subbyte::cuda {

inline constexpr uint32_t kLastStepTag = 255;

class StepTensors {
 public:
  /// A tensor from `begin` on, in words, whose writes in this program have had tags from 1 up to
  /// this one.
  struct Place {
    int64_t begin;
    uint32_t tag;
  };

  /// `capacity` in words.
  explicit StepTensors(int64_t capacity) : capacity_(capacity) {}

  void begin_program();

  /// The next operation, which reads `data`, every CTA all of it or not. Nothing: that was not
  /// written in this program.
  std::optional<Place> read(const void* data, bool reads_all = true);

  /// One more that the last operation reads.
  std::optional<Place> also_read(const void* data, bool reads_all = true);

  /// Says whether `data` was written in this program.
  bool has(const void* data) const;

  /// The result of the last operation that read. `begins`: it is the first of several that write
  /// this tensor side by side. Nothing: it cannot be tagged, and the program must end with it.
  std::optional<Place> write(const void* data, int64_t words, bool begins = true);

 private:
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

  /// Read of a tensor that was not written before it in this program.
  struct OldRead {
    const void* data;
    int reader;
  };

  Tensor* find(const void* data);
  int last_old_reader(const void* data) const;
  Tensor* find_or_add(const void* data, int64_t words);
  int num_operations() const { return static_cast<int>(known_.size()); }

  int64_t capacity_;
  int64_t used_ = 0;
  std::vector<Tensor> tensors_;
  std::vector<OldRead> old_reads_;
  /// Number for each operation: those before it have ended when all of its result is there.
  std::vector<int> known_;
  int known_to_writers_ = 0;  // of the last operation: when a CTA writes its part
  bool is_full_ = false;
};

/// The tags of programs as they run: each counts its own from where the one before ended, so that
/// old words are told from new ones, whatever their places are, until all words are cleared.
class StepTags {
 public:
  struct Base {
    uint32_t tag = 0;
    bool clears = false;  // the words must be set to zero before this program
  };

  /// Begins the next program, which takes `tags` tags.
  Base begin_program(uint32_t tags);

 private:
  uint32_t used_ = 0;
};

}  // namespace subbyte::cuda
