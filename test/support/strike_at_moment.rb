# frozen_string_literal: true

# Raises an exception in the running thread at one moment of the library's code: before or after one of its lines or
# calls.
module StrikeAtMoment
  Struck = Class.new(Exception) # rubocop:disable Lint/InheritException -- nobody is to rescue it
  private_constant :Struck

  # @param moment [Integer] 1 for the first line or call
  # @param paths [Regexp] the files whose code is struck
  # @return [String, nil] where the block was struck; nil if it was over before that moment
  def struck_at(moment, paths)
    seen, where, thread = 0, nil, Thread.current
    trace = TracePoint.new(:line, :return, :c_call, :c_return, :b_return) do |point|
      next unless Thread.current == thread && point.path&.match?(paths)
      next unless (seen += 1) == moment

      where = "#{File.basename(point.path)}:#{point.lineno} #{point.event}"
      thread.raise(Struck)
    end
    begin
      trace.enable { yield }
    rescue Struck
      nil
    end
    where
  end
end
