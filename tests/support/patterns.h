#pragma once
// The patterns of conformance/patterns: those of tokenizers' families, mixtures of their parts, and
// 100 that are made to be slow.

#include <fstream>
#include <string>
#include <vector>

namespace subbyte {

struct NamedPattern {
  std::string kind;     // family, mixed or slow
  std::string verdict;  // "split", or the code of the refusal
  std::string name;     // of a slow one: what its text repeats, '_' for a space
  std::string pattern;

  /// What a text repeats that this pattern finds hard.
  std::string unit() const {
    if (kind != "slow") return "A wordy's 12345   \n\n x! ";
    std::string made = name;
    for (char& c : made) c = c == '_' ? ' ' : c;
    return made;
  }
};

inline std::vector<NamedPattern> read_patterns(const std::string& path) {
  std::vector<NamedPattern> made;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    NamedPattern item;
    for (std::string* part : {&item.kind, &item.verdict, &item.name}) {
      const std::size_t tab = line.find('\t');
      *part = line.substr(0, tab);
      line.erase(0, tab + 1);
    }
    item.pattern = line;
    made.push_back(std::move(item));
  }
  return made;
}

/// `unit` again and again, with something at the end that no loop takes.
inline std::string repeated_text(const std::string& unit, std::size_t size) {
  std::string text;
  while (text.size() < size) text += unit;
  return text + "\x01";
}

}  // namespace subbyte
