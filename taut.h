// What every part of Taut shares: the error type and the version. Nothing else belongs here.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace taut {

inline constexpr const char* kVersion = "0.1.0";

/// An error that ends the work and speaks to the user: what happened to which thing, and what to do about it.
/// Thrown where work must end, caught once per command, printed as `error: …` / `hint: …`.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string what, std::string hint = {}, int exit_code = 1)
      : std::runtime_error(std::move(what)), hint_(std::move(hint)), exit_code_(exit_code) {}

  /// What the user can do; may be empty.
  const std::string& hint() const { return hint_; }

  /// 1 = the work failed, 2 = it was asked for wrongly.
  int exit_code() const { return exit_code_; }

 private:
  std::string hint_;
  int exit_code_;
};

}  // namespace taut
