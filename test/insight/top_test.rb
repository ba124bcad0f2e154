# frozen_string_literal: true

require "test_helper"
require "io/console"
require "pty"
require "shellwords"
require "support/insight_helpers"

# heddle top, on a terminal and on none.
class TopTest < Minitest::Test
  include InsightHelpers

  PROGRAM = <<~RUBY
    Heddle.run do
      40.times { |number| Heddle.spawn(name: "sleeper \#{number}") { sleep } }
      Heddle.spawn(name: "busy") { loop { sleep 0.001 } }
      puts "ready"
      sleep
    end
  RUBY
  ENTER = "\e[?1049h\e[?25l\e[?7l"
  LEAVE = "\e[?7h\e[?25h\e[?1049l"

  def test_keys_and_the_size_of_the_window
    looking_into(PROGRAM) do |pid|
      on_top(pid) do |screen, keys, top|
        assert_includes shows(screen, /w: quit|q: quit/), ENTER
        text = shows(screen, /by longest wait/)
        refute_includes text, "sleeper 39" # the window has twelve lines
        keys.write("r")
        assert_match(/  running|  waiting|  ready/, shows(screen, /by most run/))
        keys.write("\e[6~" * 8)
        shows(screen, /sleeper/)
        keys.winsize = [60, 100]
        Process.kill(:WINCH, top)
        shows(screen, /sleeper 39/)
        keys.write("q")
        assert_includes rest(screen), LEAVE
        assert_equal 0, Process.wait2(top).last.exitstatus
      end
    end
  end

  def test_an_interrupt_leaves_the_terminal_as_it_was
    looking_into(PROGRAM) do |pid|
      on_top(pid) do |screen, keys, top|
        shows(screen, /q: quit/)
        keys.write("\u0003")
        assert_includes rest(screen), LEAVE
        assert_equal 130, Process.wait2(top).last.exitstatus
      end
    end
  end

  # Only a shell continues what Ctrl-Z has stopped.
  def test_a_shell_stops_and_continues_it
    looking_into(PROGRAM) do |pid|
      on_terminal("bash", "--norc", "--noediting", "-i", RUBYOPT: nil, PS1: "$ ") do |screen, keys, shell|
        keys.puts(invocation(pid).shelljoin)
        shows(screen, /q: quit/)
        keys.write("\u001a")
        assert_includes shows(screen, /Stopped/), LEAVE
        keys.puts("fg")
        assert_includes shows(screen, /q: quit/), ENTER
        keys.write("q")
        shows(screen, /\e\[\?1049l/)
        keys.puts("exit $?")
        rest(screen)
        assert_equal 0, Process.wait2(shell).last.exitstatus
      end
    end
  end

  def test_the_process_ends_meanwhile
    looking_into(PROGRAM) do |pid|
      on_top(pid) do |screen, _, top|
        shows(screen, /q: quit/)
        Process.kill(:KILL, pid)
        text = rest(screen)
        assert_includes text, LEAVE
        assert_match(/heddle: (?:there is no process|process) #{pid}/, text)
        assert_equal 69, Process.wait2(top).last.exitstatus
      end
    end
  end

  def test_colours_are_for_terminals_that_have_them
    looking_into("Heddle.run { Heddle.spawn { sleep }; sleep 0.01; puts 'ready'; loop { } }") do |pid|
      shown = lambda do |verb, **environment|
        text = nil
        on_top(pid, verb, **environment) { |screen, _, command| (text = rest(screen)) && Process.wait(command) }
        text
      end
      assert_match(/^  \d+ +\e\[1;31mrunning\e\[m /, shown["ps"])
      assert_match(/^└─ \d+ \e\[1;31mrunning\e\[m /, shown["tree"].force_encoding(Encoding::UTF_8))
      refute_match(/\e/, shown["ps", NO_COLOR: "1"])
      refute_match(/\e/, shown["ps", TERM: "dumb"])
      refute_match(/\e/, shown["top", TERM: "dumb"])
      refute_match(/\e/, heddle("ps", pid))
    end
  end

  def test_without_a_terminal_it_prints_once
    looking_into(PROGRAM) { |pid| assert_match(/^process #{pid} .*"sleeper 39"/m, heddle("top", pid)) }
  end

  private

  def invocation(pid, verb = "top") = [RbConfig.ruby, "--disable=gems", "#{ROOT}/exe/heddle", verb, pid.to_s]

  def on_top(pid, verb = "top", **environment, &block)
    on_terminal(*invocation(pid, verb), RUBYOPT: nil, NO_COLOR: nil, **environment, &block)
  end

  # The pseudo terminal belongs to the command's process group, as a shell has it.
  def on_terminal(*command, **environment)
    PTY.spawn({TERM: "xterm", **environment}.transform_keys(&:to_s), *command) do |screen, keys, child|
      keys.winsize = [12, 100]
      yield screen, keys, child
    ensure
      begin
        Process.kill(:KILL, child)
      rescue Errno::ESRCH
        nil
      end
    end
  end

  # Reads until the screen has shown that.
  def shows(screen, pattern)
    text = +""
    wait_until(30, what: "#{pattern.inspect} on the screen") do
      text << screen.read_nonblock(65_536, exception: false).then { |bytes| bytes.is_a?(String) ? bytes : "" }
      text.dup.force_encoding(Encoding::UTF_8).scrub.match?(pattern)
    end
    text
  end

  # All up to the end. Linux ends a terminal without processes by EIO.
  def rest(screen)
    text = +""
    wait_until(30, what: "the end of heddle top") do
      bytes = screen.read_nonblock(65_536, exception: false)
      text << bytes if bytes.is_a?(String)
      bytes.nil?
    rescue Errno::EIO
      true
    end
    text
  end
end
