// Keys whose other values the runtime does not implement yet. One entry leaves the table when its feature lands.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/config.h"

namespace taut::config {

struct NotYet {
  const char* key;
  const char* values;                   // for docs: which values are refused
  bool (*used)(const Config&);          // whether this config asks for one of them
  std::string (*value)(const Config&);  // the value it asks for
  const char* instead;                  // what to set
};

const std::vector<NotYet>& not_yet();

}  // namespace taut::config
