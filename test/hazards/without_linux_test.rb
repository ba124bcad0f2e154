# frozen_string_literal: true

require "test_helper"
require "heddle"
require "support/loop_helpers"

# Our Ruby code that relies on features that only Linux has: its constants are removed, and files under /proc and /sys
# are missing. `rake portability` checks the C code.
class WithoutLinuxTest < Minitest::Test
  include LoopHelpers

  WITHOUT_LINUX = <<~'RUBY'
    require "tmpdir"
    require "heddle/processes"
    require "heddle/memcached"
    require "heddle/db"
    require "heddle/net_http"

    LINUX = /\A(SO_PEERCRED|SO_DOMAIN|SO_PROTOCOL|SO_BINDTODEVICE|SO_BUSY_POLL|SO_INCOMING_CPU|SO_ATTACH_FILTER|
      SO_MARK|SO_PASSCRED|TCP_INFO|TCP_QUICKACK|TCP_CORK|TCP_USER_TIMEOUT|TCP_KEEPIDLE|TCP_DEFER_ACCEPT|TCP_FASTOPEN|
      SOCK_CLOEXEC|SOCK_NONBLOCK|
      MSG_NOSIGNAL|MSG_MORE|MSG_ERRQUEUE|MSG_CMSG_CLOEXEC|MSG_FASTOPEN|AF_PACKET|PF_PACKET|SCM_CREDENTIALS)\z/x
    [Socket, Socket::Constants].each do |place|
      place.constants(false).grep(LINUX).each { |name| place.send(:remove_const, name) }
    end
    %i[DIRECT NOATIME TMPFILE].each do |name|
      File::Constants.send(:remove_const, name) if File::Constants.const_defined?(name, false)
    end
    hidden = Module.new do
      %i[open read readlines foreach readlink children entries exist? stat new].each do |name|
        define_method(name) do |*arguments, **options, &block|
          raise "Linux's own: #{arguments.first}" if arguments.first.to_s.start_with?("/proc", "/sys")
          super(*arguments, **options, &block)
        end
      end
    end
    [File, IO, Dir].each { |klass| klass.singleton_class.prepend(hidden) }
  RUBY

  def test_constants_of_linux_are_missing
    assert_equal "NameError",
      assert_child("#{WITHOUT_LINUX}\nbegin; Socket::TCP_INFO; rescue => error; print error.class; end")
    outcome = in_child("#{WITHOUT_LINUX}\nFile.read('/proc/self/status')")
    assert_includes outcome.err, "Linux's own: /proc/self/status"
  end

  def test_tasks_names_sockets_and_children_work_without_linux
    out = assert_child(<<~RUBY)
      #{WITHOUT_LINUX}
      server = TCPServer.new("127.0.0.1", 0)
      path = Dir.mktmpdir + "/socket"
      local = UNIXServer.new(path)
      Heddle.run do
        [server, local].each do |listener|
          Heddle.spawn { listener.accept.then { |peer| peer.write(peer.gets) && peer.close } }
        end
        p Heddle::Stream.connect("localhost", server.local_address.ip_port, timeout: 5)
          .then { |stream| stream.write("tcp\\n") && stream.gets }
        p Heddle::Stream.unix(path, timeout: 5).then { |stream| stream.write("unix\\n") && stream.gets }
        p Heddle.offload { 3 }
        p Process.wait2(spawn("exit 4")).last.exitstatus
        p((Heddle.deadline(0.01) { sleep } rescue $!.class))
        p Heddle.stats.class
      end
      p Heddle::Processes.new(2).map([5, 6], &:succ)
    RUBY
    assert_equal ['"tcp\n"', '"unix\n"', "3", "4", "Heddle::DeadlineExceeded", "Hash", "[6, 7]"], out.lines(chomp: true)
  end

  # There the server's process is unknown, so its queries are not killed.
  def test_queries_on_a_unix_socket_are_not_killed
    out = assert_child(<<~RUBY)
      #{WITHOUT_LINUX}
      require "heddle/db/mysql/killer"
      p Heddle::DB::MySQL::Killer.marks(UNIXSocket.pair.first)
    RUBY
    assert_equal "[nil, nil]\n", out
  end
end
