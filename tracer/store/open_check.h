// What is checked before and after SQLite opens a file that somebody else may have made.
#pragma once

#include <string>

struct sqlite3;

namespace taut::store {

/// Throws taut::Error unless `path` is a readable regular file with an SQLite header.
void check_file(const std::string& path);

/// Switches off everything in SQLite that a read-only look does not need, and sets its limits.
void harden(sqlite3* db);

/// Throws unless the schema is a trace's: the tables we know are plain tables without triggers or computed columns.
void check_schema(sqlite3* db, const std::string& path);

/// Throws taut::Error for an SQLite result code met while reading `path`.
[[noreturn]] void fail_reading(sqlite3* db, int code, const std::string& path);

}  // namespace taut::store
