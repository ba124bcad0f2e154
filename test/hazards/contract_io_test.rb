# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "tempfile"

runs_on also: %i[yjit]

# Contract test: calls the hooks that move bytes as each Ruby version does, whichever Ruby runs this.
class ContractIOTest < Minitest::Test
  include LoopHelpers

  def test_contract_io_read_and_io_write_before_4_1
    skip "this Ruby has the contract of 4.1" if swapped?
    with_pair do |reader, writer|
      Heddle.run do
        scheduler = Fiber.scheduler
        buffer = IO::Buffer.new(16)
        # EAGAIN while there is data: the caller decides whether to wait.
        assert_equal(-Errno::EAGAIN::Errno, scheduler.io_read(reader, buffer, 0, 0))
        scheduler.io_write(writer, buffer_of("a"), 0)
        assert_equal 1, scheduler.io_read(reader, buffer, 0, 0)
        buffer.clear
        task = Heddle.spawn { scheduler.io_read(reader, buffer, 5, 2) } # at least five, from the third byte on
        assert_equal 3, scheduler.io_write(writer, buffer_of("abc"), 3)
        sleep(0)
        assert_equal :waiting, task.status
        scheduler.io_write(writer, buffer_of("__de"), 2, 2)
        assert_equal 5, task.value
        assert_equal "\0\0abcde", buffer.get_string(0, 7)
        writer.close
        assert_equal 0, scheduler.io_read(reader, buffer, 5, 0)
        assert_raises(ArgumentError) { scheduler.io_read(reader, buffer, 1, 17) }
      end
    end
  end

  # Where Ruby's IO::Buffer is that of 4.1, the hooks are those of 4.1, and loading them warns of nothing.
  def test_contract_the_hooks_of_4_1_are_defined_once
    program = <<~RUBY
      IO::Buffer::VERSION = 3 unless IO::Buffer.const_defined?(:VERSION)
      require "heddle"
      puts %w[read write pread pwrite].map { |name| Heddle::Scheduler.instance_method("io_\#{name}").arity }.inspect
    RUBY
    assert_equal "[4, 4, 5, 5]\n",
      IO.popen([RbConfig.ruby, "-w", "-I#{ROOT}/lib", "-e", program], err: %i[child out], &:read)
  end

  # One transfer of at most `length` bytes, from `offset` on; the caller waits.
  def test_contract_io_read_and_io_write_of_4_1
    with_pair do |reader, writer|
      Heddle.run do
        scheduler = Fiber.scheduler
        buffer = IO::Buffer.new(16)
        assert_equal(-Errno::EAGAIN::Errno, scheduler.io_read_once(reader, buffer, 0, 5))
        assert_equal 3, scheduler.io_write_once(writer, buffer_of("__abcdef"), 2, 3)
        assert_equal 2, scheduler.io_read_once(reader, buffer, 4, 2)
        assert_equal 1, scheduler.io_read_once(reader, buffer, 6, 9)
        assert_equal "\0\0\0\0abc\0", buffer.get_string(0, 8)
        filled = 0
        loop do
          count = scheduler.io_write_once(writer, IO::Buffer.new(65_536), 0, 65_536)
          break assert_equal(-Errno::EAGAIN::Errno, count) if count < 0

          filled += count
        end
        assert_operator filled, :>, 0
        reader.close
        assert_equal(-Errno::EPIPE::Errno, scheduler.io_write_once(writer, buffer_of("x"), 0, 1))
        assert_raises(ArgumentError) { scheduler.io_write_once(writer, buffer_of("x"), 2, 1) }
      end
    end
  end

  def test_contract_the_contract_is_detected
    scheduler = Heddle::Scheduler
    same = scheduler.instance_method(:io_read) == scheduler.instance_method(:io_read_once)
    assert_equal swapped?, same
  end

  # The version of IO::Buffer decides, wherever it comes from.
  def test_contract_the_contract_of_4_1_is_detected
    Tempfile.create(["version", ".rb"]) do |file|
      file.write("IO::Buffer.send(:remove_const, :VERSION) if IO::Buffer.const_defined?(:VERSION)\n" \
        "IO::Buffer::VERSION = 3")
      file.close
      out = assert_child(<<~'RUBY', env: {"RUBYOPT" => "-r#{file.path}"})
        %w[read write pread pwrite].each do |name|
          puts Heddle::Scheduler.instance_method("io_#{name}") == Heddle::Scheduler.instance_method("io_#{name}_once")
        end
      RUBY
      assert_equal ["true"] * 4, out.lines(chomp: true)
    end
  end

  def test_contract_io_pread_and_io_pwrite_of_3_2
    skip "this Ruby has the contract of 4.1" if swapped?
    with_file("0123456789") do |file|
      Heddle.run do
        scheduler = Fiber.scheduler
        buffer = IO::Buffer.new(8)
        assert_equal 4, scheduler.io_pread(file, buffer, 3, 4, 1)
        assert_equal "\x003456\0", buffer.get_string(0, 6)
        assert_equal 2, scheduler.io_pread(file, buffer, 8, 8, 0) # up to the end
        assert_equal 0, scheduler.io_pread(file, buffer, 10, 1, 0)
        assert_equal 2, scheduler.io_pwrite(file, buffer_of("__XY__"), 4, 2, 2)
        assert_equal "0123XY6789", File.read(file.path)
      end
    end
  end

  def test_contract_io_pread_and_io_pwrite_of_3_1
    skip "this Ruby has the contract of 4.1" if swapped?
    with_file("0123456789") do |file|
      Heddle.run do
        scheduler = Fiber.scheduler
        buffer = IO::Buffer.new(4)
        assert_equal 4, scheduler.io_pread(file, buffer, 4, 3)
        assert_equal "3456", buffer.get_string
        assert_equal 2, scheduler.io_pwrite(file, buffer_of("XY__"), 2, 4)
        assert_equal "0123XY6789", File.read(file.path)
      end
    end
  end

  def test_contract_io_pread_and_io_pwrite_of_4_1
    with_file("0123456789") do |file|
      Heddle.run do
        scheduler = Fiber.scheduler
        buffer = IO::Buffer.new(8)
        assert_equal 4, scheduler.io_pread_once(file, buffer, 3, 1, 4)
        assert_equal "\x003456\0", buffer.get_string(0, 6)
        assert_equal 2, scheduler.io_pwrite_once(file, buffer_of("__XY__"), 4, 2, 2)
        assert_equal "0123XY6789", File.read(file.path)
      end
    end
  end

  def test_contract_errors_are_returned
    with_pair do |reader, writer|
      Heddle.run do
        scheduler = Fiber.scheduler
        assert_equal(-Errno::ESPIPE::Errno, scheduler.io_pread_once(reader, IO::Buffer.new(1), 0, 0, 1))
        assert_equal(-Errno::ESPIPE::Errno, scheduler.io_pwrite_once(writer, buffer_of("x"), 0, 0, 1))
      end
    end
  end

  # As Ruby itself calls them: through IO::Buffer on every Ruby, through IO from 3.3 on.
  def test_pread_and_pwrite_by_ruby
    with_file("0123456789") do |file|
      Heddle.run do
        other = Heddle.spawn { sleep(0.001) && :ran }
        arguments = ruby_at_least?("3.2") ? ->(length, from) { [from, length] } : ->(length, from) { [length, from] }
        buffer = IO::Buffer.new(4)
        assert_equal 4, buffer.pread(file, *arguments.call(4, 3))
        assert_equal "3456", buffer.get_string
        assert_equal 3, buffer_of("XYZ").pwrite(file, *arguments.call(3, 4))
        assert_equal "0123XYZ789", File.read(file.path)
        assert_equal "XYZ", file.pread(3, 4)
        assert_equal 2, file.pwrite("ab", 1)
        assert_equal "0ab3XYZ789", File.read(file.path)
        assert_raises(EOFError) { file.pread(1, 100) }
        assert_equal :ran, other.value
      end
    end
  end

  private

  def swapped?
    IO::Buffer.const_defined?(:VERSION) && IO::Buffer::VERSION >= 3
  end

  def buffer_of(string)
    IO::Buffer.for(string.dup)
  end

  def with_file(text)
    Tempfile.create("heddle") do |file|
      file.write(text)
      file.flush
      yield file
    end
  end
end
