# frozen_string_literal: true

# The program of DeadNetwork: sets up the namespaces in which it was started, starts a DNS server there, and then runs
# the command that follows its settings, in its own place.

require "json"
require "socket"
require "tmpdir"
require_relative "dead_network"
require_relative "dns_server"

# <linux/if_tun.h>, <linux/sockios.h>, <net/if.h>
module Device
  TUNSETIFF = 0x400454ca
  IFF_TUN = 0x1
  IFF_NO_PI = 0x1000
  SIOCGIFFLAGS = 0x8913
  SIOCSIFFLAGS = 0x8914
  SIOCSIFADDR = 0x8916
  SIOCSIFNETMASK = 0x891c
  SIOCGIFINDEX = 0x8933
  IFF_UP = 0x1
  IFA_F_TENTATIVE = 0x40

  module_function

  # A network device without a reader: packets sent there are never answered. It lives as long as the returned File.
  def dead(name)
    device = File.open("/dev/net/tun", "r+")
    device.ioctl(TUNSETIFF, request(name, [IFF_TUN | IFF_NO_PI].pack("s")))
    device
  end

  def up(name)
    control(:INET) do |socket|
      flags = request(name)
      socket.ioctl(SIOCGIFFLAGS, flags)
      socket.ioctl(SIOCSIFFLAGS, request(name, [flags[16, 2].unpack1("s") | IFF_UP].pack("s")))
    end
  end

  def ipv4(name, address, mask)
    control(:INET) do |socket|
      socket.ioctl(SIOCSIFADDR, request(name, Socket.sockaddr_in(0, address)))
      socket.ioctl(SIOCSIFNETMASK, request(name, Socket.sockaddr_in(0, mask)))
    end
  end

  def ipv6(name, address, prefix)
    control(:INET6) do |socket|
      index = request(name)
      socket.ioctl(SIOCGIFINDEX, index)
      socket.ioctl(SIOCSIFADDR, Socket.sockaddr_in(0, address)[8, 16] + [prefix].pack("L") + index[16, 4])
    end
  end

  # Returns once the addresses may be used: after adding them, the kernel still checks them for duplicates, and until
  # then the C library puts IPv6 behind IPv4, as if IPv6 had no route.
  def await_addresses(name)
    sleep 0.001 while File.foreach("/proc/net/if_inet6").any? do |line|
      _, _, _, _, flags, device = line.split
      device == name && flags.hex.anybits?(IFA_F_TENTATIVE)
    end
  end

  def request(name, data = "")
    [name, data].pack("a16a24")
  end

  def control(family)
    socket = Socket.new(family, :DGRAM)
    yield socket
  ensure
    socket&.close
  end
end

settings = JSON.parse(ARGV.shift)
dead = Device.dead("dead0")
own = Heddle::Lab::DeadNetwork::OWN_ADDRESSES
Device.ipv4("dead0", own[:ipv4], "255.255.255.0")
%w[lo dead0].each { |name| Device.up(name) }
Device.ipv6("dead0", own[:ipv6], 64)
Device.await_addresses("dead0")
File.write("/proc/sys/net/ipv4/tcp_syn_retries", settings["syn_retries"].to_s)

# The mounts keep the files, which no longer need names.
Dir.mktmpdir do |folder|
  hosts = {"127.0.0.1" => ["localhost"]}.merge(settings["hosts"]) { |_, ours, theirs| ours + theirs }
  {
    "resolv.conf" => "nameserver 127.0.0.1\noptions timeout:5 attempts:2\n",
    "hosts" => hosts.map { |address, names| "#{address} #{names.join(" ")}\n" }.join,
    "nsswitch.conf" => "hosts: #{settings["nsswitch"]}\n"
  }.each do |name, text|
    path = File.join(folder, name)
    File.write(path, text)
    File.chmod(0o644, path)
    system("mount", "--bind", path, File.realpath("/etc/#{name}"), exception: true)
  end
end

# The command replaces this process. The server is forked twice, so that it is not a child for which the command would
# wait. It ends when no process holds the other end of the pipe any more, and the device ends with it.
server = Heddle::Lab::DNSServer.new(settings["zone"], log: File.open(settings["log"], "a"))
ended, alive = IO.pipe
between = fork do
  fork do
    alive.close
    [$stdin, $stdout, $stderr].each { |io| io.reopen(File::NULL) }
    Thread.new { server.run }
    ended.read
    dead.close
  end
  exit!(0)
end
Process.wait(between)
alive.close_on_exec = false
exec(*ARGV)
