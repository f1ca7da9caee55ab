#include "runtime/data/keeper.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/data/mix.h"
#include "taut.h"

namespace taut::data {
namespace {

constexpr std::chrono::milliseconds kRetry{10};

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

}  // namespace

struct Keeper::Impl {
  int kept = -1;        // the keeper's, owned by whoever made it
  Descriptor received;  // the others'
  Descriptor listener;  // the keeper's
  std::thread server;

  ~Impl() {
    if (!server.joinable()) return;
    shutdown(listener.fd, SHUT_RDWR);  // ends accept
    server.join();
  }

  void serve() {
    for (;;) {
      const Descriptor client(accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC));
      if (client.fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
      if (client.fd < 0) return;
      if (!same_user(client.fd)) continue;
      const Message message(kept);
      static_cast<void>(sendmsg(client.fd, &message.header, MSG_NOSIGNAL));  // a client that left needs nothing
    }
  }

  /// Claims the name before the work, so that others wait instead of doing it too. False if another has it.
  bool become_keeper(const Address& address, const std::function<int()>& make) {
    Descriptor claimed(new_socket());
    if (bind(claimed.fd, address.get(), address.length) != 0 || listen(claimed.fd, SOMAXCONN) != 0) return false;
    kept = make();
    listener = std::move(claimed);
    server = std::thread([this] { serve(); });
    return true;
  }

  /// Waits for the keeper's descriptor. False if there is no keeper (any more).
  bool attach(const Address& address) {
    const Descriptor socket(new_socket());
    if (connect(socket.fd, address.get(), address.length) != 0 || !same_user(socket.fd)) return false;
    received = Descriptor(receive_descriptor(socket.fd));
    return received.fd >= 0;
  }
};

Keeper::Keeper(const std::string& key, const std::function<int()>& make) : impl_(std::make_unique<Impl>()) {
  const Address address(key + '\n' + std::to_string(geteuid()));
  while (!impl_->become_keeper(address, make) && !impl_->attach(address)) {
    // Between a keeper's bind and its listen, or after its death: neither worked, soon one will.
    std::this_thread::sleep_for(kRetry);
  }
}

Keeper::~Keeper() = default;

bool Keeper::is_keeper() const {
  return impl_->listener.fd >= 0;
}
Descriptor Keeper::take_received() {
  return std::move(impl_->received);
}

}  // namespace taut::data
