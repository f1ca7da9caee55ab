#include "runtime/data/preload.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/data/job.h"
#include "runtime/data/mix.h"
#include "taut.h"

namespace taut::data {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr uint64_t kBlockBytes = 1 << 20;
constexpr Milliseconds kRetry{10};

struct Socket {
  explicit Socket(int descriptor) : fd(descriptor) {}
  ~Socket() {
    if (fd >= 0) close(fd);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd;
};

/// An abstract address: the name exists exactly as long as the socket bound to it.
struct Address {
  explicit Address(const std::string& key) {
    uint64_t hash = 0;
    for (const char byte : key) hash = mix(hash ^ static_cast<uint8_t>(byte));
    socket.sun_family = AF_UNIX;
    const int written = std::snprintf(socket.sun_path + 1, sizeof socket.sun_path - 1, "taut-preload-%016llx",
                                      static_cast<unsigned long long>(hash));
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(written));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&socket); }
  sockaddr_un socket{};
  socklen_t length = 0;
};

int new_socket() {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw Error(std::string("cannot open a socket: ") + std::strerror(errno), "raise ulimit -n");
  return fd;
}

/// Abstract names have no owner, so both sides check that the other is the same user.
bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

struct Message {
  explicit Message(int fd) {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  }
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
};

/// The descriptor that the keeper sends; -1 if it ended before it had one.
int receive_descriptor(int socket) {
  Message message(-1);
  ssize_t got;
  while ((got = recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  const cmsghdr* rights = got > 0 ? CMSG_FIRSTHDR(&message.header) : nullptr;
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return -1;
  int fd;
  std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
  return fd;
}

/// The text, then the documents (job.h), then the size of those: all that another process needs.
std::shared_ptr<SharedMemory> load(const Corpus& corpus, double read_latency_ms) {
  std::vector<Document> documents = corpus.documents();
  for (int64_t offset = 0; Document & document : documents) {
    document.memory_offset = offset;
    offset += static_cast<int64_t>(document.bytes);
  }
  const std::vector<uint8_t> listing = encode_documents(documents);
  const uint64_t listing_bytes = listing.size();
  auto memory = std::make_shared<SharedMemory>(corpus.bytes() + listing_bytes + sizeof listing_bytes,
                                               "the preloaded corpus (data.preload)");
  char* to = memory->data();
  std::string block;
  for (size_t index = 0; index < documents.size(); ++index) {
    for (uint64_t offset = 0; offset < documents[index].bytes; offset += kBlockBytes) {
      if (read_latency_ms > 0) std::this_thread::sleep_for(Milliseconds(read_latency_ms));
      block.clear();
      corpus.read(index, offset, kBlockBytes, block);
      to = std::copy(block.begin(), block.end(), to);
    }
  }
  to = std::copy(listing.begin(), listing.end(), to);
  std::memcpy(to, &listing_bytes, sizeof listing_bytes);
  return memory;
}

Corpus as_corpus(std::shared_ptr<const SharedMemory> memory) {
  uint64_t listing_bytes = 0;
  const size_t tail = memory->bytes() - sizeof listing_bytes;
  std::memcpy(&listing_bytes, memory->data() + tail, sizeof listing_bytes);
  std::vector<Document> documents = decode_documents(memory->data() + (tail - listing_bytes), listing_bytes);
  return Corpus(std::move(documents), std::move(memory));
}

}  // namespace

struct PreloadedCorpus::Impl {
  std::optional<Corpus> corpus;
  std::optional<Socket> listener;  // the keeper's
  std::thread server;

  ~Impl() {
    if (!server.joinable()) return;
    shutdown(listener->fd, SHUT_RDWR);  // ends accept
    server.join();
  }

  void serve() {
    for (;;) {
      const Socket client(accept4(listener->fd, nullptr, nullptr, SOCK_CLOEXEC));
      if (client.fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
      if (client.fd < 0) return;
      if (!same_user(client.fd)) continue;
      const Message message(corpus->memory()->fd());
      static_cast<void>(sendmsg(client.fd, &message.header, MSG_NOSIGNAL));  // a client that left needs nothing
    }
  }

  /// Claims the name before reading, so that others wait instead of reading too. False if another has it.
  bool become_keeper(const Address& address, const std::filesystem::path& path, double read_latency_ms) {
    listener.emplace(new_socket());
    if (bind(listener->fd, address.get(), address.length) != 0 || listen(listener->fd, SOMAXCONN) != 0) {
      listener.reset();
      return false;
    }
    corpus = as_corpus(load(Corpus::open(path), read_latency_ms));
    server = std::thread([this] { serve(); });
    return true;
  }

  /// Waits for the keeper's memory. False if there is no keeper (any more).
  bool attach(const Address& address) {
    const Socket socket(new_socket());
    if (connect(socket.fd, address.get(), address.length) != 0 || !same_user(socket.fd)) return false;
    const int fd = receive_descriptor(socket.fd);
    if (fd < 0) return false;
    corpus = as_corpus(std::make_shared<SharedMemory>(fd, SharedMemory::Access::read_only));
    return true;
  }
};

PreloadedCorpus::PreloadedCorpus(const std::filesystem::path& path, const std::string& job, double read_latency_ms)
    : impl_(std::make_unique<Impl>()) {
  const Address address(std::filesystem::absolute(path).lexically_normal().string() + '\n' + job + '\n' +
                        std::to_string(geteuid()));
  while (!impl_->become_keeper(address, path, read_latency_ms) && !impl_->attach(address)) {
    // Between a keeper's bind and its listen, or after its death: neither worked, soon one will.
    std::this_thread::sleep_for(kRetry);
  }
}

PreloadedCorpus::~PreloadedCorpus() = default;

const Corpus& PreloadedCorpus::corpus() const {
  return *impl_->corpus;
}
bool PreloadedCorpus::is_keeper() const {
  return impl_->listener.has_value();
}

}  // namespace taut::data
