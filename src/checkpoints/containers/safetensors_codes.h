#pragma once
// Every refusal of a safetensors file and of a shard index, in the order in which the rules are
// checked. docs/safetensors.md explains them; conformance/safetensors has files for each.

#include <array>
#include <string_view>

namespace subbyte {

namespace safetensors_codes {
// The frame.
inline constexpr std::string_view kTooSmall = "safetensors.too_small";
inline constexpr std::string_view kHeaderTooLarge = "safetensors.header_too_large";
inline constexpr std::string_view kHeaderBeyondFile = "safetensors.header_beyond_file";
inline constexpr std::string_view kEmptyHeader = "safetensors.empty_header";
// The text of the header.
inline constexpr std::string_view kByteOrderMark = "safetensors.byte_order_mark";
inline constexpr std::string_view kUtf8 = "safetensors.utf8";
inline constexpr std::string_view kJson = "safetensors.json";
inline constexpr std::string_view kTrailingText = "safetensors.trailing_text";
inline constexpr std::string_view kNotObject = "safetensors.not_object";
inline constexpr std::string_view kMetadata = "safetensors.metadata";
// One entry.
inline constexpr std::string_view kBadName = "safetensors.bad_name";
inline constexpr std::string_view kEntryType = "safetensors.entry_type";
inline constexpr std::string_view kUnknownField = "safetensors.unknown_field";
inline constexpr std::string_view kDuplicateField = "safetensors.duplicate_field";
inline constexpr std::string_view kMissingField = "safetensors.missing_field";
inline constexpr std::string_view kDtype = "safetensors.dtype";
inline constexpr std::string_view kShape = "safetensors.shape";
inline constexpr std::string_view kRank = "safetensors.rank";
inline constexpr std::string_view kShapeOverflow = "safetensors.shape_overflow";
inline constexpr std::string_view kMisalignedBits = "safetensors.misaligned_bits";
inline constexpr std::string_view kOffsets = "safetensors.offsets";
inline constexpr std::string_view kOffsetRange = "safetensors.offset_range";
inline constexpr std::string_view kSizeMismatch = "safetensors.size_mismatch";
// All entries together.
inline constexpr std::string_view kDuplicateName = "safetensors.duplicate_name";
inline constexpr std::string_view kFirstOffset = "safetensors.first_offset";
inline constexpr std::string_view kHole = "safetensors.hole";
inline constexpr std::string_view kOverlap = "safetensors.overlap";
inline constexpr std::string_view kTruncatedData = "safetensors.truncated_data";
inline constexpr std::string_view kTrailingData = "safetensors.trailing_data";

inline constexpr std::array kAll = {
    kTooSmall,      kHeaderTooLarge, kHeaderBeyondFile,
    kEmptyHeader,   kByteOrderMark,  kUtf8,
    kJson,          kTrailingText,   kNotObject,
    kMetadata,      kBadName,        kEntryType,
    kUnknownField,  kDuplicateField, kMissingField,
    kDtype,         kShape,          kRank,
    kShapeOverflow, kMisalignedBits, kOffsets,
    kOffsetRange,   kSizeMismatch,   kDuplicateName,
    kFirstOffset,   kHole,           kOverlap,
    kTruncatedData, kTrailingData,
};

// Of the writer, about what its caller did: too few bytes, or too many.
inline constexpr std::string_view kIncomplete = "safetensors.incomplete";
}  // namespace safetensors_codes

namespace index_codes {
// The directory.
inline constexpr std::string_view kNoCheckpoint = "index.no_checkpoint";
inline constexpr std::string_view kPickleOnly = "index.pickle_only";
inline constexpr std::string_view kLinkOutside = "index.link_outside";
// The text of the index.
inline constexpr std::string_view kTooLarge = "index.too_large";
inline constexpr std::string_view kUtf8 = "index.utf8";
inline constexpr std::string_view kJson = "index.json";
inline constexpr std::string_view kDuplicateKey = "index.duplicate_key";
inline constexpr std::string_view kDepth = "index.depth";
inline constexpr std::string_view kNotObject = "index.not_object";
inline constexpr std::string_view kMetadata = "index.metadata";
inline constexpr std::string_view kTotalSize = "index.total_size";
inline constexpr std::string_view kWeightMap = "index.weight_map";
// What it names.
inline constexpr std::string_view kShardType = "index.shard_type";
inline constexpr std::string_view kShardName = "index.shard_name";
inline constexpr std::string_view kTooManyShards = "index.too_many_shards";
inline constexpr std::string_view kShardMissing = "index.shard_missing";
inline constexpr std::string_view kTensorMissing = "index.tensor_missing";
inline constexpr std::string_view kTensorTwice = "index.tensor_twice";
inline constexpr std::string_view kTensorUnlisted = "index.tensor_unlisted";

inline constexpr std::array kAll = {
    kNoCheckpoint, kPickleOnly,    kLinkOutside, kTooLarge,       kUtf8,
    kJson,         kDuplicateKey,  kDepth,       kNotObject,      kMetadata,
    kTotalSize,    kWeightMap,     kShardType,   kShardName,      kTooManyShards,
    kShardMissing, kTensorMissing, kTensorTwice, kTensorUnlisted,
};
}  // namespace index_codes

}  // namespace subbyte
