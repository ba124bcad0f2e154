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

  RETURNS = %i[return b_return c_return].freeze
  # Ruby has instructions for these, and checks for no interrupt behind them; in the last ones an interrupt is an
  # "exception reentered".
  UNINTERRUPTED = %i[size > < <= >= == ! empty? [] - + nil? backtrace set_backtrace exception].freeze
  private_constant :RETURNS, :UNINTERRUPTED

  # Raises in the running thread, as the handler of a signal does, at the first of these moments, counted from the call
  # of what the block gets, and at each next one, counted from the one before: when methods and blocks return.
  #
  # @param moments [Array<Integer>]
  # @yieldparam armed [Proc]
  # @return [Array<String>] where
  def raised_at(moments)
    reached = []
    trace = TracePoint.new(*RETURNS) do |event|
      next if moments.empty? || event.path == __FILE__ || UNINTERRUPTED.include?(event.method_id)
      next if (moments[0] -= 1) > 0

      moments.shift
      reached << "#{event.event} of #{event.method_id} at #{event.path}:#{event.lineno}"
      raise Interrupted
    end
    begin
      yield -> { trace.enable(target_thread: Thread.current) }
    ensure
      trace.disable
    end
    reached
  rescue Interrupted
    reached
  end
end
