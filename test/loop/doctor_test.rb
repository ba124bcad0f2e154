# frozen_string_literal: true

require "test_helper"
require "open3"
require "support/loop_helpers"
require "support/refusals"
require "heddle/doctor"

class DoctorTest < Minitest::Test
  include LoopHelpers
  include Refusals

  ASK = 'require "heddle/doctor"; puts Heddle::Doctor.lines'

  def test_what_runs_here
    lines = assert_child(ASK, env: {"HEDDLE_BACKEND" => nil}).lines(chomp: true)
    assert_match(/\Aheddle #{Heddle::VERSION}, Ruby #{RUBY_VERSION} on #{RUBY_PLATFORM}, Linux /o, lines.shift)
    assert_match(%r{\Acompiled code: /.*/heddle\.so, compiled on this machine\z}, lines.shift)
    names = Heddle::Scheduler.backends
    assert_equal "backend: #{names.first}; available: #{names.join(", ")}", lines.shift
    assert_equal %w[uring epoll poll] - names, lines.map { |line| line[/\A\w+/] }
  end

  def test_the_compiled_code_of_macos
    renamed = '$LOADED_FEATURES.map! { |path| path.sub(/heddle\.so\z/, "heddle.bundle") }'
    out = assert_child(ASK.sub(";", "; #{renamed};"), env: {"HEDDLE_BACKEND" => nil})
    assert_match(%r{^compiled code: /.*/heddle\.bundle, }, out)
  end

  def test_a_forced_backend
    assert_includes assert_child(ASK, env: {"HEDDLE_BACKEND" => "poll"}), "backend: poll (HEDDLE_BACKEND); available: "
  end

  # The one command that shall say what is wrong does so where programs raise.
  def test_a_forced_backend_that_is_not_there
    lines = assert_child(ASK, env: {"HEDDLE_BACKEND" => "kqueue"}).lines
    assert_match(/\Abackend: none \(HEDDLE_BACKEND=kqueue: no such backend.*\); available: .*poll$/, lines[2])
    skip "this build has no io_uring" unless Heddle::Scheduler.backends.include?("uring")
    refusing(IO_URING_SETUP, Errno::EPERM) do |launcher|
      out = assert_child(ASK, env: {"HEDDLE_BACKEND" => "uring"}, launcher: launcher)
      assert_match(/^backend: none \(HEDDLE_BACKEND=uring: this kernel refuses .*\); available: epoll, poll$/, out)
      assert_match(/^uring: this kernel refuses it .*security profile/, out)
    end
  end

  def test_the_command_without_compiled_code_says_so_in_a_sentence
    command = [RbConfig.ruby, File.expand_path("../../exe/heddle", __dir__), "doctor"]
    said, status = Open3.capture2e({"HEDDLE_NATIVE_DIR" => "/none"}, *command)
    assert_equal ["heddle: cannot load such file -- /none/heddle.so\n", 69], [said, status.exitstatus]
  end

  # Other systems have neither.
  def test_backends_that_are_not_in_the_build
    left_out = 'def (Heddle::Scheduler).backends = ["poll"]; def (Heddle::Scheduler).refused_backends = {}'
    {"x86_64-linux" => /^uring: not in this build: install .*`gem pristine heddle`, or .*rake clean compile`/,
     "arm64-darwin24" => /^uring: not in this build$/}.each do |platform, line|
      code = ASK.sub(";", "; #{left_out}; $VERBOSE = nil; RUBY_PLATFORM = #{platform.inspect};")
      out = assert_child(code, env: {"HEDDLE_BACKEND" => nil})
      assert_match(line, out)
      assert_match(/^epoll: not in this build$/, out)
    end
  end

  def test_a_backend_that_the_kernel_refuses
    skip "this build has no io_uring" unless Heddle::Scheduler.backends.include?("uring")
    {Errno::EPERM => "security profile", Errno::ENOSYS => "too old"}.each do |error, cause|
      refusing(IO_URING_SETUP, error) do |launcher|
        out = assert_child(ASK, env: {"HEDDLE_BACKEND" => nil}, launcher: launcher)
        assert_match(/^uring: this kernel refuses it \(#{error.new.message}: .*#{cause}/, out)
        assert_includes out, "backend: epoll; "
      end
    end
  end
end
