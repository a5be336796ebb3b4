#include "app/line_reader.h"

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "app/libedit.h"
#include "app/output.h"
#include "app/plain_line.h"
#include "app/terminal.h"

namespace subbyte::app {
namespace {

constexpr int kHistoryLines = 1000;
constexpr char kLiteral = '\1';  // around what a prompt has that takes no column
constexpr std::string_view kFence = "\"\"\"";

/// Characters beyond ASCII need a locale that says how they are spelled.
void choose_encoding() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

/// libedit on the terminal. Prompts go to the error stream: standard output is for answers.
class LineReader::Editor {
 public:
  Editor(std::string note, std::vector<std::string> words)
      : note_(std::move(note)), words_(std::move(words)) {
    choose_encoding();
    edit_ = libedit()->el_init("subbyte", stdin, stderr, stderr);
    history_ = libedit()->history_init();
    HistEvent event;
    libedit()->history(history_, &event, H_SETSIZE, kHistoryLines);
    libedit()->history(history_, &event, H_SETUNIQUE, 1);
    libedit()->el_set(edit_, EL_CLIENTDATA, this);
    libedit()->el_set(edit_, EL_PROMPT_ESC, prompt_of, kLiteral);
    libedit()->el_set(edit_, EL_EDITOR, "emacs");
    libedit()->el_set(edit_, EL_HIST, libedit()->history, history_);
    libedit()->el_set(edit_, EL_SIGNAL, 1);
    libedit()->el_set(edit_, EL_ADDFN, "abandon-line", "Begin the line anew", abandon_line);
    libedit()->el_set(edit_, EL_ADDFN, "paste", "Insert what is pasted", paste);
    libedit()->el_set(edit_, EL_ADDFN, "complete-word", "Complete the word", complete);
    libedit()->el_set(edit_, EL_ADDFN, "suspend", "Suspend the program", suspend);
    // Ctrl-C is a key while a line is typed.
    libedit()->el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
    libedit()->el_set(edit_, EL_BIND, "^C", "abandon-line", nullptr);
    libedit()->el_set(edit_, EL_BIND, "^Z", "suspend", nullptr);
    libedit()->el_set(edit_, EL_BIND, "\\e[200~", "paste", nullptr);
    libedit()->el_set(edit_, EL_BIND, "^I", "complete-word", nullptr);
    libedit()->el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    libedit()->el_set(edit_, EL_BIND, "\\e[3~", "ed-delete-next-char", nullptr);
    libedit()->el_set(edit_, EL_BIND, "\\e[H", "ed-move-to-beg", nullptr);
    libedit()->el_set(edit_, EL_BIND, "\\e[F", "ed-move-to-end", nullptr);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;
  ~Editor() {
    libedit()->history_end(history_);
    libedit()->el_end(edit_);
  }

  std::optional<std::string> read(const std::string& prompt) {
    prompt_ = literal(Style::kGood, prompt);
    // Before the prompt: what is typed from then on is edited, and what is pasted comes between
    // "ESC [200~" and "ESC [201~".
    libedit()->el_set(edit_, EL_PREP_TERM, 1);
    print(stderr, "\033[?2004h");
    int length = 0;
    const char* line = libedit()->el_gets(edit_, &length);
    print(stderr, "\033[?2004l");
    if (line == nullptr || length <= 0) {
      print(stderr, "\n");
      return std::nullopt;
    }
    std::string text(line, static_cast<std::size_t>(length));
    if (text.find_first_not_of(" \r\n") != std::string::npos) {
      HistEvent event;
      libedit()->history(history_, &event, H_ENTER, text.c_str());
    }
    return text;
  }

 private:
  static Editor& of(EditLine* edit) {
    void* self = nullptr;
    libedit()->el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<Editor*>(self);
  }

  static const char* prompt_of(EditLine* edit) { return of(edit).prompt_.c_str(); }

  /// The prompt in a style, whose escape sequences libedit is told not to count.
  static std::string literal(Style style, const std::string& text) {
    const std::string with = styled(style, text, stderr);
    const std::size_t at = with.find(text);
    if (with.size() == text.size() || at == with.npos) return text;
    const std::string mark(1, kLiteral);
    return mark + with.substr(0, at) + mark + text + mark + with.substr(at + text.size()) + mark;
  }

  static unsigned char paste(EditLine* edit, int) {
    constexpr std::wstring_view kEnd = L"\033[201~";
    std::wstring text;
    wchar_t c = 0;
    while (!text.ends_with(kEnd) && libedit()->el_wgetc(edit, &c) == 1) text += c;
    if (text.ends_with(kEnd)) text.resize(text.size() - kEnd.size());
    std::ranges::replace(text, L'\r', L'\n');
    text.resize(text.find_last_not_of(L'\n') + 1);
    std::erase_if(text, [](wchar_t each) { return each < L' ' && each != L'\n' && each != L'\t'; });
    return libedit()->el_winsertstr(edit, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  /// Completes the first word of the line as far as it is clear.
  static unsigned char complete(EditLine* edit, int) {
    const LineInfo* line = libedit()->el_line(edit);
    const std::string_view typed(line->buffer,
                                 static_cast<std::size_t>(line->cursor - line->buffer));
    std::string common;
    bool found = false;
    for (const std::string& word : of(edit).words_) {
      if (typed.empty() || !word.starts_with(typed)) continue;
      if (!found) common = word + " ";
      found = true;
      const auto different = std::ranges::mismatch(common, word + " ").in1;
      common.erase(different, common.end());
    }
    if (!found || common.size() == typed.size()) return CC_REFRESH_BEEP;
    return libedit()->el_insertstr(edit, common.c_str() + typed.size()) == 0 ? CC_REFRESH
                                                                             : CC_ERROR;
  }

  static unsigned char abandon_line(EditLine* edit, int) {
    const LineInfo* line = libedit()->el_line(edit);
    const bool empty = line->lastchar == line->buffer;
    libedit()->el_cursor(edit, static_cast<int>(line->lastchar - line->cursor));
    libedit()->el_deletestr(edit, static_cast<int>(line->lastchar - line->buffer));
    print(stderr, empty ? "\n" + of(edit).note_ + "\n" : "^C\n");
    return CC_REDISPLAY;
  }

  static unsigned char suspend(EditLine*, int) {
    raise(SIGTSTP);  // libedit gives the terminal back meanwhile
    return CC_REDISPLAY;
  }

  std::string note_;
  std::vector<std::string> words_;
  std::string prompt_;
  EditLine* edit_;
  History* history_;
};

LineReader::LineReader(std::string note, std::vector<std::string> words)
    : interactive_(is_terminal(stdin)) {
  if (interactive_ && moves_cursor() && libedit() != nullptr) {
    editor_ = std::make_unique<Editor>(std::move(note), std::move(words));
  }
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::read(const std::string& prompt) {
  std::optional<std::string> line;
  if (editor_ != nullptr) {
    line = editor_->read(prompt);
  } else if (interactive_) {
    line = read_plain_line(prompt);
  } else {
    std::string text;
    if (std::getline(std::cin, text)) line = std::move(text);
  }
  if (line) line->resize(line->find_last_not_of("\r\n") + 1);
  return line;
}

std::optional<std::string> read_message(LineReader& reader) {
  auto line = reader.read("> ");
  if (!line || !line->starts_with(kFence)) return line;
  std::string message = line->substr(kFence.size());
  while (!message.ends_with(kFence)) {
    line = reader.read("... ");
    if (!line) return message;
    message += '\n' + *line;
  }
  message.resize(message.size() - kFence.size());
  if (message.starts_with('\n')) message.erase(0, 1);
  if (message.ends_with('\n')) message.pop_back();
  return message;
}

}  // namespace subbyte::app
