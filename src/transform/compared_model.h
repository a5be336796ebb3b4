#pragma once
// One of the two models that are compared: its modules taken apart into matrices, by names that
// both have, and the tensors that are in none.

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/expert_names.h"
#include "models/checkpoint.h"
#include "models/tensor_spec.h"

namespace subbyte {

/// A matrix by the name of its stack and its number in it, -1 for one that is in none.
struct ComparedKey {
  std::string stack;
  int64_t expert = -1;

  auto operator<=>(const ComparedKey&) const = default;
  std::string name() const { return expert < 0 ? stack : expert_name(stack, expert); }
};

struct ComparedUnit {
  std::size_t module = 0;
  std::size_t index = 0;  // of the matrix in its module
  int part = -1;          // of a matrix whose parts the other side has as modules of their own
  int64_t first = 0;      // row of the part, unless those of two parts alternate
  int64_t rows = 0;       // of the part
  bool alternates = false;
};

/// Parts of a matrix, each of which a file may also have by itself.
struct JointParts {
  std::vector<PartSpec> parts;
  bool alternates = false;  // the rows of both parts
};

class ComparedModel {
 public:
  /// Codes: those of open_weights().
  static Result<ComparedModel> open(const std::filesystem::path& directory, Executor& pool);

  /// The prefix of its names, and that of its head; empty where no model is known.
  std::string prefix() const { return prefix_; }
  /// From now on names are those that most models have, as the other side has another prefix.
  void use_usual_names() { has_usual_names_ = !prefix_.empty(); }

  /// The name in the comparison of a tensor or a module of a file.
  std::string shown(const std::string& name) const;
  /// The tensor that is called so; nullptr: there is none.
  const FileTensor* find(const std::string& shown_name) const;

  /// `stacks` are names that the other side has as experts: here they may be one plain tensor.
  Status find_units(const std::set<std::string>& stacks, Executor& pool);
  std::set<std::string> stacks() const;

  /// Parts that one matrix has, such as gate and up, as matrices wherever `other` has them so.
  void take_apart_as(const ComparedModel& other);
  /// A head that is tied to the embedding, where `other` has one of its own: the embedding is what
  /// it is compared with.
  void untie_as(const ComparedModel& other);

  int64_t rows(const ComparedUnit& unit) const {
    return unit.part < 0 ? modules_[unit.module].info->rows : unit.rows;
  }
  /// The matrix of a unit; the module of the last one stays imported.
  Result<MatrixView> matrix(const ComparedUnit& unit, Executor& pool);
  /// Its share of the bytes of its module.
  uint64_t bytes(const ComparedUnit& unit) const;
  std::string describe(const ComparedUnit& unit) const;

  const FoundModule& module(const ComparedUnit& unit) const { return modules_[unit.module]; }
  const std::map<ComparedKey, ComparedUnit>& units() const { return units_; }
  const TensorSource& tensors() const { return *checkpoint_.tensors; }
  const QuantizationConfig& config() const { return *checkpoint_.quantization; }
  bool is_used(const std::string& tensor) const { return used_.contains(tensor); }

 private:
  ComparedModel(CheckpointParts checkpoint, bool alternates);

  ImportContext context_with(Executor& pool) const;
  ImportContext context_for(const std::string& module, Executor& pool) const;
  void find_family_names();
  JointParts joint_of(const ComparedKey& key, int64_t rows) const;
  ComparedKey key_of(const std::string& name) const;
  void add_units(std::size_t m);
  void release();

  CheckpointParts checkpoint_;
  bool alternates_;  // rows of gate and up, where a stack of a family that is not known has both
  std::string prefix_, head_;
  bool has_usual_names_ = false;
  std::vector<FoundModule> modules_;
  std::map<std::string, FileMatrix> stacks_;  // that the family has, by their names in the file
  std::map<std::string, JointParts> joints_;  // the same, by the names that they are shown with
  std::set<std::string> expert_stacks_;       // of its experts, by these names, too
  std::map<ComparedKey, ComparedUnit> units_;
  std::set<std::string_view> used_;  // tensors of modules
  int64_t imported_ = -1;
  std::vector<Matrix> matrices_;
  Matrix part_;  // of one of them, the last that was asked for
};

}  // namespace subbyte
