#include "kernels/cuda/step/tensors.h"

#include <gtest/gtest.h>

namespace subbyte::cuda {
namespace {

constexpr int64_t kWords = 100;

/// Tensors by their names: addresses that nothing reads.
const void* at(char name) {
  static constexpr char kPlaces[128] = {};
  return &kPlaces[static_cast<unsigned char>(name)];
}

/// The operations of a layer of a model, as pairs of what they read and write: true if all results
/// can be tagged.
bool add_all(StepTensors& tensors, const char* operations) {
  for (const char* o = operations; *o != 0; o += 2) {
    tensors.read(at(o[0]));
    if (!tensors.write(at(o[1]), kWords)) return false;
  }
  return true;
}

TEST(StepTensors, layers_use_the_same_tensors_again) {
  StepTensors tensors(5 * kWords);
  tensors.begin_program();
  EXPECT_FALSE(tensors.read(at('x')));  // was there before the program
  const auto first = tensors.write(at('q'), kWords);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->tag, 1u);
  const auto read = tensors.read(at('q'));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->begin, first->begin);
  EXPECT_EQ(read->tag, 1u);
  ASSERT_TRUE(tensors.write(at('a'), kWords));
  EXPECT_TRUE(add_all(tensors, "axxggx"));
  for (uint32_t layer = 2; layer < 20; ++layer) {
    ASSERT_TRUE(tensors.read(at('x')));
    const auto again = tensors.write(at('q'), kWords);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->begin, first->begin);
    EXPECT_EQ(again->tag, layer);
    EXPECT_TRUE(add_all(tensors, "qaaxxggx"));
  }
}

TEST(StepTensors, a_tensor_that_may_still_be_read_is_not_written) {
  StepTensors tensors(5 * kWords);
  tensors.begin_program();
  // 2 writes what 1 reads, and does not know whether 1 has ended.
  EXPECT_FALSE(add_all(tensors, "xqqaxq"));
  tensors.begin_program();
  // 3 reads what 1 wrote, but 2 may still read q.
  EXPECT_FALSE(add_all(tensors, "xqqaqbaq"));
  tensors.begin_program();
  // 3 reads what 2 wrote, which was after 1 only by the clock.
  EXPECT_FALSE(add_all(tensors, "xqqaqbbq"));
  tensors.begin_program();
  EXPECT_FALSE(add_all(tensors, "xqyqqa"));  // written twice, read never
  tensors.begin_program();
  EXPECT_TRUE(add_all(tensors, "xqqaaq"));
}

TEST(StepTensors, what_was_there_before_is_not_written_while_it_may_be_read) {
  StepTensors tensors(5 * kWords);
  tensors.begin_program();
  EXPECT_FALSE(add_all(tensors, "xx"));
  tensors.begin_program();
  EXPECT_FALSE(add_all(tensors, "xqyx"));  // 1 does not know whether 0 has read all of x
  tensors.begin_program();
  EXPECT_TRUE(add_all(tensors, "xqqx"));
}

TEST(StepTensors, a_cta_of_attention_knows_of_its_heads_alone) {
  StepTensors tensors(5 * kWords);
  const auto attend = [&](char from, char to) {
    tensors.read(at(from), false);
    return tensors.write(at(to), kWords).has_value();
  };
  tensors.begin_program();
  EXPECT_TRUE(add_all(tensors, "xq"));
  EXPECT_FALSE(attend('q', 'x'));  // others of 0 may still read x
  tensors.begin_program();
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE(add_all(tensors, "xq"));
    EXPECT_TRUE(attend('q', 'a'));
    EXPECT_TRUE(add_all(tensors, "axxggx"));  // who reads all of a knows of all heads
  }
}

TEST(StepTensors, parts_of_a_tensor_are_written_side_by_side) {
  StepTensors tensors(5 * kWords);
  tensors.begin_program();
  for (int layer = 1; layer < 4; ++layer) {
    for (const bool begins : {true, false, false}) {
      tensors.read(at('x'));
      const auto part = tensors.write(at('q'), kWords, begins);
      ASSERT_TRUE(part);
      EXPECT_EQ(part->tag, static_cast<uint32_t>(layer));
    }
    ASSERT_TRUE(add_all(tensors, "qaax"));
  }
}

/// A router writes l, which gate and up read beside x; down reads what they write.
TEST(StepTensors, an_operation_may_read_two_tensors) {
  StepTensors tensors(5 * kWords);
  tensors.begin_program();
  EXPECT_TRUE(add_all(tensors, "yx"));
  for (uint32_t layer = 1; layer < 5; ++layer) {
    ASSERT_TRUE(add_all(tensors, "xl"));
    ASSERT_TRUE(tensors.read(at('x')));
    const auto logits = tensors.also_read(at('l'));
    ASSERT_TRUE(logits);
    EXPECT_EQ(logits->tag, layer);
    ASSERT_TRUE(tensors.write(at('g'), kWords));
    ASSERT_TRUE(add_all(tensors, "gx"));
  }
  // Who reads l without knowing who read it before must not write it.
  ASSERT_TRUE(add_all(tensors, "xl"));
  ASSERT_TRUE(tensors.read(at('x')));
  ASSERT_TRUE(tensors.also_read(at('l')));
  ASSERT_TRUE(tensors.write(at('g'), kWords));
  EXPECT_FALSE(add_all(tensors, "xl"));
}

/// q and g are written from x; who attends reads parts of both.
TEST(StepTensors, parts_of_two_tensors_tell_of_both) {
  StepTensors tensors(6 * kWords);
  const auto mix = [&] {
    tensors.read(at('q'), false);
    const bool is_there = tensors.also_read(at('g'), false).has_value();
    return tensors.write(at('a'), kWords).has_value() && is_there;
  };
  tensors.begin_program();
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_FALSE(tensors.has(at('g')) && layer == 0);
    ASSERT_TRUE(add_all(tensors, "xqxg"));
    EXPECT_TRUE(tensors.has(at('g')));
    ASSERT_TRUE(mix());
    ASSERT_TRUE(add_all(tensors, "axxhhx"));  // x is written: all who wrote q and g have read it
  }
  // A part of q tells nothing of who else read x.
  tensors.begin_program();
  ASSERT_TRUE(add_all(tensors, "xqxg"));
  tensors.read(at('q'), false);
  tensors.also_read(at('g'), false);
  EXPECT_FALSE(tensors.write(at('x'), kWords));
}

TEST(StepTensors, a_program_ends_with_its_tags) {
  StepTensors tensors(5 * kWords);
  for (int program = 0; program < 2; ++program) {
    tensors.begin_program();
    for (uint32_t layer = 1; layer <= kLastStepTag / 2; ++layer) {
      ASSERT_TRUE(add_all(tensors, "xqqaaxxggx"));
    }
    tensors.read(at('x'));
    ASSERT_TRUE(tensors.write(at('q'), kWords));
    EXPECT_TRUE(add_all(tensors, "qaax"));  // the 255th x
    EXPECT_FALSE(add_all(tensors, "xggx"));
  }
}

TEST(StepTags, go_on_until_the_words_are_cleared) {
  StepTags tags;
  uint32_t used = 0;
  int cleared = 0;
  for (int program = 0; program < 50; ++program) {
    const uint32_t taken = 40 + program % 3;
    const StepTags::Base base = tags.begin_program(taken);
    if (base.clears) {
      EXPECT_EQ(base.tag, 0u);
      ++cleared;
    } else {
      EXPECT_EQ(base.tag, used);
    }
    used = base.tag + taken;
    EXPECT_LE(used, kLastStepTag);
  }
  EXPECT_EQ(cleared, 8);
  EXPECT_TRUE(tags.begin_program(kLastStepTag).clears);
  EXPECT_TRUE(tags.begin_program(1).clears);
}

TEST(StepTensors, begin_anew_where_tensors_have_changed) {
  StepTensors tensors(3 * kWords);
  tensors.begin_program();
  EXPECT_TRUE(add_all(tensors, "xqqa"));
  tensors.begin_program();
  tensors.read(at('x'));
  EXPECT_FALSE(tensors.write(at('q'), 2 * kWords));  // another one at its address
  tensors.begin_program();
  tensors.read(at('x'));
  EXPECT_TRUE(tensors.write(at('q'), 2 * kWords));
  EXPECT_TRUE(add_all(tensors, "qa"));
  EXPECT_FALSE(add_all(tensors, "ab"));  // no room
  tensors.begin_program();
  tensors.read(at('x'));
  EXPECT_FALSE(tensors.write(at('q'), 4 * kWords));
}

}  // namespace
}  // namespace subbyte::cuda
