# frozen_string_literal: true

require "etc"
require_relative "run"

module Heddle
  # Says which compiled code runs here, which backends it and the kernel have, and why one is not used. `heddle doctor`
  # prints that, as does:
  #
  #   ruby -r heddle/doctor -e "puts Heddle::Doctor.lines"
  module Doctor
    BACKENDS = %w[uring epoll poll].freeze
    # What each missing backend has for a cause, where it is not the system.
    CAUSES = {
      Errno::EPERM => "a container's security profile, as Docker's default one, or the sysctl kernel.io_uring_disabled",
      Errno::ENOSYS => "the kernel or a container's filter is too old",
      Errno::ENOMEM => "the limit of locked memory, ulimit -l, is too low"
    }.freeze
    # In a checkout, `rake compile` alone would not look for the headers again.
    MEND = ": install liburing's headers, 2.3 or newer, then run `gem pristine heddle`, or `bundle exec rake clean " \
      "compile` in a checkout"
    private_constant :BACKENDS, :CAUSES, :MEND

    # Runs a task, too.
    #
    # @return [Array<String>]
    def self.lines
      system = Etc.uname.values_at(:sysname, :release).join(" ")
      ["heddle #{VERSION}, Ruby #{RUBY_VERSION} on #{RUBY_PLATFORM}, #{system}",
        "compiled code: #{code}", "backend: #{used}; available: #{Scheduler.backends.join(", ")}", *refused,
        *left_out]
    end

    def self.used
      forced = " (HEDDLE_BACKEND)" unless ENV["HEDDLE_BACKEND"].to_s.empty?
      "#{Heddle.run { Heddle.spawn { Fiber.scheduler.backend }.value }}#{forced}"
    rescue ArgumentError, BackendUnavailable => error # of a HEDDLE_BACKEND that cannot be had
      "none (#{error.message})"
    end
    private_class_method :used

    def self.code
      path = $LOADED_FEATURES.grep(%r{/heddle\.(?:so|bundle)\z}).first # the latter on macOS
      here = File.exist?(File.expand_path("../../ext/heddle/extconf.rb", __dir__))
      "#{path}, #{here ? "compiled on this machine" : "of a gem with compiled code"}"
    end
    private_class_method :code

    def self.refused
      Scheduler.refused_backends.map do |name, error|
        "#{name}: this kernel refuses it (#{[error.message, CAUSES[error.class]].compact.join(": ")})"
      end
    end
    private_class_method :refused

    def self.left_out
      (BACKENDS - Scheduler.backends - Scheduler.refused_backends.keys).map do |name|
        "#{name}: not in this build#{MEND if name == "uring" && RUBY_PLATFORM.include?("linux")}"
      end
    end
    private_class_method :left_out
  end
end
