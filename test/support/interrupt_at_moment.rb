# frozen_string_literal: true

# Raises an exception in the running thread at one moment of the library's code: before or after one of its lines or
# calls.
module InterruptAtMoment
  Interrupted = Class.new(Exception) # rubocop:disable Lint/InheritException -- nobody is to rescue it
  private_constant :Interrupted

  # @param moment [Integer] 1 for the first line or call
  # @param paths [Regexp] the files whose code is interrupted
  # @return [String, nil] where the block was interrupted; nil if it was over before that moment
  def interrupted_at(moment, paths)
    seen, where, thread = 0, nil, Thread.current
    trace = TracePoint.new(:line, :return, :c_call, :c_return, :b_return) do |point|
      next unless Thread.current == thread && point.path&.match?(paths)
      next unless (seen += 1) == moment

      where = "#{File.basename(point.path)}:#{point.lineno} #{point.event}"
      thread.raise(Interrupted)
    end
    begin
      trace.enable { yield }
    rescue Interrupted
      nil
    end
    where
  end
end
