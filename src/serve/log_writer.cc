#include "serve/log_writer.h"

#include <chrono>
#include <thread>
#include <utility>

namespace subbyte::serve {

LogWriter::LogWriter(std::function<void(const std::string&)> write)
    : state_(std::make_shared<State>()) {
  state_->write = std::move(write);
  std::thread([state = state_] { run(state); }).detach();
}

LogWriter::~LogWriter() {
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, std::chrono::seconds(1), [this] { return state_->is_done; });
}

void LogWriter::put(const Line& line) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->lines.size() >= kMaxLines) {
      ++state_->num_dropped;
      return;
    }
    state_->lines.push_back(line(std::exchange(state_->num_dropped, 0)));
  }
  state_->changed.notify_all();
}

void LogWriter::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return !state->lines.empty() || state->ends; });
    if (state->lines.empty()) break;
    const std::string line = std::move(state->lines.front());
    state->lines.pop_front();
    lock.unlock();
    state->write(line);
    lock.lock();
  }
  state->is_done = true;
  state->changed.notify_all();
}

}  // namespace subbyte::serve
