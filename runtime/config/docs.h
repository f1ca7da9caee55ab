// docs/config.md, generated from the key table.
#pragma once

#include <string>

namespace taut::config {

/// The whole page. A test compares it with docs/config.md; `TAUT_UPDATE_DOCS=1` makes that test write the file.
std::string config_page();

}  // namespace taut::config
