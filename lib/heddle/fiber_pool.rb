# frozen_string_literal: true
module Heddle
end
